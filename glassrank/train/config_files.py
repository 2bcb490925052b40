"""A run's TOML file: read into its config, and held against what a folder was made with.

Arrays that were prepared with other settings, or a run that began with others, would give a model
that its card does not describe.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassrank.errors import InputError
from glassrank.files import read_whole
from glassrank.settings import from_plain, shown, to_plain
from glassrank.train.config import TrainConfig

if TYPE_CHECKING:
    from glassrank.models import Ranker

_LARGEST, _LONGEST_LINE = 1 << 16, 1000
"""Characters of a config and of its lines. Python's reader takes memory with the square of the
number of parts in a dotted key."""
_MOST_EXTENDED = 16
_NUL = re.compile(r"\\u0000|\\U00000000")
_LATER = {"remove_stop_words": False, "train_on": "beginnings"}
"""Settings that older folders do not know, and what held then."""


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
        from_plain(family.config_type, tried.config, "config")
        if tried.remove_stop_words and family.reads_pieces:
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
        text = read_whole(path, _LARGEST).decode("utf-8")
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
    pieces = family_of(config).reads_pieces
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
            f"{folder} was made with {name} = {shown(old)}, now it is {shown(new)}; {remedy}"
        )


def _differences(before: Any, now: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in [*now, *(key for key in before if key not in now)]:
            inside = f"{name}.{key}" if name else str(key)
            yield from _differences(before.get(key), now.get(key), inside)
    elif before != now:
        yield name or "other settings", before, now
