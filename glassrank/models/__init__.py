"""One file for each family of models, one contract for all.

A new family is one file here, and nothing else: the class in it that has a `name` is found by it. A
model of somebody else's is named `module:Class`.
"""

import difflib
import pkgutil
import re
from collections.abc import Collection
from importlib import import_module
from inspect import isabstract
from types import ModuleType

from glassrank.errors import InputError
from glassrank.models.contract import (
    Output,
    PieceText,
    Ranker,
    TokenBatch,
    WordRanker,
    Words,
    WordTable,
)
from glassrank.models.ensemble import Ensemble
from glassrank.models.pieces import PieceRanker
from glassrank.models.word_tables import SubwordTable

_NO_FAMILIES = frozenset(
    "checkpoint contract ensemble fast mores_gpu pieces pretrained saving seal text_batches "
    "weights word_tables".split()
)
"""Files here that other files share; some need packages that a machine which trains has not."""
_OUTSIDE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _in(module: ModuleType) -> dict[str, type[Ranker]]:
    """The models that a file defines, by name."""
    return {
        vars(member)["name"]: member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, Ranker)
        and member.__module__ == module.__name__
        and "name" in vars(member)
    }


MODELS: dict[str, type[Ranker]] = {}
"""The families of this package, by name."""
for _file in pkgutil.iter_modules(__path__):
    if _file.name not in _NO_FAMILIES:
        MODELS.update(_in(import_module(f"{__name__}.{_file.name}")))


def find_family(name: str, trusted: Collection[str] = ()) -> type[Ranker]:
    """A family of this package by its name, or a class outside of it as `module:Class`. That must
    be named among `trusted` too, because it is code, which runs as soon as it is imported."""
    if name in MODELS:
        return MODELS[name]
    if not is_outside(name):
        raise InputError(f"{name!r} is not known; {meant(name)}")
    if name not in trusted:
        raise InputError(
            f"{name} is code from outside this package, which is not run unless you ask for it; "
            f"if you trust that module, name the model {name}@FOLDER"
        )
    return _outside(name)


def meant(name: str) -> str:
    """For whoever asks for a family that there is not."""
    near = difflib.get_close_matches(name[:100], MODELS, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(MODELS)}"


def is_outside(name: str) -> bool:
    """Whether it is written as `module:Class`."""
    return _OUTSIDE.fullmatch(name) is not None


def name_of(family: type[Ranker]) -> str:
    """What `find_family` finds it by."""
    ours = MODELS.get(family.name) is family or family is Ensemble
    return family.name if ours else f"{family.__module__}:{family.__qualname__}"


def _outside(name: str) -> type[Ranker]:
    module, _, attribute = name.partition(":")
    try:
        family = getattr(import_module(module), attribute)
    except Exception as error:  # whatever code may do that is not ours
        raise InputError(
            f"{name} cannot be imported: {type(error).__name__}: {error}; its module must be "
            "installed, or in a folder that PYTHONPATH names"
        ) from None
    if not isinstance(family, type) or not issubclass(family, Ranker) or isabstract(family):
        raise InputError(f"{name} is not a whole subclass of glassrank.models.Ranker")
    missing = [need for need in ("name", "config_type") if not hasattr(family, need)]
    if missing or family.name in (*MODELS, Ensemble.name):
        raise InputError(f"{name} needs a {missing[0] if missing else 'name that is not taken'}")
    return family


__all__ = [
    "MODELS",
    "Ensemble",
    "Output",
    "PieceRanker",
    "PieceText",
    "Ranker",
    "SubwordTable",
    "TokenBatch",
    "WordRanker",
    "WordTable",
    "Words",
    "find_family",
    "is_outside",
    "meant",
    "name_of",
]
