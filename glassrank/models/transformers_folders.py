"""Loads published sentence transformers and cross-encoders for PyTorch: the same weights, and the
same scores up to a factor. No code of a folder is run.
"""

from pathlib import Path
from typing import Any

from glassrank.errors import InputError
from glassrank.models.bi_encoders import SingleVector
from glassrank.models.families import MODELS
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.models.pretrained import Pretrained, read_pretrained
from glassrank.models.published_files import check_folder, read_json, read_pooling
from glassrank.models.torch_models import start_with

_QUERY_LENGTH = 64  # of a cross-encoder, whose positions query and document share


def load_transformers_folder(folder: Path) -> SavedModel:
    """Loads the model of a folder, and how it is used."""
    check_folder(folder)
    bert = read_pretrained(str(folder))
    if is_cross_encoder(folder):
        return _cross_encoder(folder, bert)
    if (folder / "modules.json").exists():
        return _sentence_transformer(folder, bert)
    raise InputError(
        f"{folder} holds an encoder alone, which ranks nothing; train a model that begins with it "
        "(start.bert in the run's TOML)"
    )


def is_cross_encoder(folder: Path) -> bool:
    """Whether its config says that it scores a pair of texts."""
    kinds = read_json(folder / "config.json", optional=True).get("architectures")
    return isinstance(kinds, list) and any("ForSequenceClassification" in str(k) for k in kinds)


def _cross_encoder(folder: Path, bert: Pretrained) -> SavedModel:
    kind = read_json(folder / "config.json").get("model_type", "bert")
    head = {name: bert.weights.get(f"classifier.{name}") for name in ("weight", "bias")}
    if kind != "bert" or head["weight"] is None or "pooler.weight" not in bert.weights:
        raise InputError(
            f"{folder} is a cross-encoder over a {str(kind)[:40]} that is not read here; known is "
            "BERT's, one layer over its pooled [CLS]"
        )
    if head["bias"] is None or head["weight"].shape != (1, bert.config.size):
        raise InputError(f"{folder} tells classes apart; expected a cross-encoder with one score")
    model: Any = start_with(bert, MODELS["bert"])
    model.score.load_state_dict(head)
    query = min(_QUERY_LENGTH, bert.config.positions // 2)
    usage = Usage(query_length=query, doc_length=bert.config.positions - query)
    return SavedModel(model.eval(), usage, bert.vocabulary)


def _sentence_transformer(folder: Path, bert: Pretrained) -> SavedModel:
    modules: Any = read_json(folder / "modules.json", list)
    by_class = {str(module["type"]).rpartition(".")[2]: module["path"] for module in modules}
    used = read_json(folder / "config_sentence_transformers.json", optional=True)
    if "Pooling" not in by_class or "LayerNorm" in by_class:
        raise InputError(f"{folder} makes no vector of a text as is known here; expected a Pooling")
    if used.get("default_prompt_name") is not None:
        raise InputError(f"{folder} wants a prompt before every text, which is not done here")
    if "Normalize" not in by_class and used.get("similarity_fn_name") not in (None, "cosine"):
        raise InputError(f"{folder} compares vectors by other than their cosine")
    pooling = read_pooling(folder / by_class["Pooling"] / "config.json")
    if pooling is None:
        raise InputError(f"{folder} does not say how it pools; known are mean and cls")
    positions = bert.config.positions
    lengths = read_json(folder / "sentence_bert_config.json", optional=True)
    longest = lengths.get("max_seq_length")
    most = min(longest, positions) if type(longest) is int and longest > 0 else positions
    model = SingleVector.start(bert, pooling=pooling)
    return SavedModel(model.eval(), Usage(query_length=most, doc_length=most), bert.vocabulary)
