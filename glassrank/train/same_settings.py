"""Whether a folder was made with the settings that a TOML file has now.

Arrays that were prepared with other settings, or a run that began with others, would give a model
that its card does not describe.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from glassrank.errors import InputError
from glassrank.settings import shown, to_plain
from glassrank.train.config import TrainConfig, family_of

_LATER = {"remove_stop_words": False, "train_on": "beginnings"}
"""Settings that older folders do not know, and what held then."""


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
