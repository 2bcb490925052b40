"""A collection and a BERT small enough for tests, and a training run on them."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from glassrank.research.train.config import TrainConfig
from glassrank.research.train.prepare import prepare
from glassrank.research.train.prepared import Prepared
from glassrank.research.train.training_texts import read_collections
from glassrank.settings import from_plain

SIZE, LAYERS, HEADS, INNER, POSITIONS = 12, 2, 3, 16, 24
WORDS = [f"word{number}" for number in range(40)]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]


def write_collection_and_bert(folder: Path) -> Path:
    """A collection in which a relevant document has the query's words, and a small BERT."""
    rng = np.random.default_rng(0)
    docs, queries, qrels = [], [], []
    for number in range(60):
        words = rng.choice(WORDS, 8)
        docs.append(f"d{number}\t{' '.join(words)}")
        if number < 24:
            queries.append(f"q{number}\t{' '.join(rng.choice(words, 4, replace=False))}")
            qrels.append(f"q{number} 0 d{number} 1")
    (folder / "docs.tsv").write_text("\n".join(docs) + "\n")
    for name, part in (("train", slice(0, 16)), ("dev", slice(16, 24)), ("all", slice(0, 24))):
        (folder / f"{name}.tsv").write_text("\n".join(queries[part]) + "\n")
        (folder / f"{name}.qrels").write_text("\n".join(qrels[part]) + "\n")
    _write_bert(folder / "bert")
    return folder


def _write_bert(folder: Path) -> None:
    folder.mkdir()
    sizes = {
        "model_type": "bert", "vocab_size": len(PIECES), "hidden_size": SIZE,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "hidden_dropout_prob": 0.0,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(sizes))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(PIECES), SIZE),
        "embeddings.position_embeddings.weight": (POSITIONS, SIZE),
        "embeddings.token_type_embeddings.weight": (2, SIZE),
        "embeddings.LayerNorm.weight": (SIZE,),
        "embeddings.LayerNorm.bias": (SIZE,),
    }
    for layer in (f"encoder.layer.{number}" for number in range(LAYERS)):
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{layer}.attention.{part}.weight"] = (SIZE, SIZE)
            shapes[f"{layer}.attention.{part}.bias"] = (SIZE,)
        for part, rows, columns in (("intermediate", INNER, SIZE), ("output", SIZE, INNER)):
            shapes[f"{layer}.{part}.dense.weight"] = (rows, columns)
            shapes[f"{layer}.{part}.dense.bias"] = (rows,)
        for part in ("attention.output", "output"):
            shapes[f"{layer}.{part}.LayerNorm.weight"] = (SIZE,)
            shapes[f"{layer}.{part}.LayerNorm.bias"] = (SIZE,)
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: 0.3 * torch.randn(shape, generator=generator) + ("LayerNorm.weight" in name)
        for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors")


def config(model: str, **changes: object) -> TrainConfig:
    plain: dict[str, object] = {
        "model": model,
        "out": "out",
        "prepared": "prepared",
        "query_length": 8,
        "doc_length": 12,
        "start": {"bert": "bert"},
        "collections": [
            {
                "name": "small", "docs": "docs.tsv", "train_queries": "train.tsv",
                "train_qrels": "train.qrels", "dev_queries": "dev.tsv", "dev_qrels": "dev.qrels",
            }
        ],
        "sampler": {"batch": 8, "negatives": 3},
        "loss": {"kind": "softmax"},
        "optimizer": {"steps": 60, "contextual": 0.01, "rest": 0.01, "schedule": "linear"},
        "validation": {"every": 30},
        **changes,
    }  # fmt: skip
    return from_plain(TrainConfig, plain)


def prepared_for(run: TrainConfig, base: Path) -> Prepared:
    return prepare(run, read_collections(run, base), base)
