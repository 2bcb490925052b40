"""Families of models, those of one idea in one file, and one contract for all.

A new family is a class in a file here, and nothing else: one that has a `name` is found by it. A
model of somebody else's is named `module:Class`.
"""

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassrank.models.contract import PieceRanker, Ranker, WordRanker, WordTable
    from glassrank.models.ensemble import Ensemble
    from glassrank.models.families import MODELS, find_family, meant, name_of
    from glassrank.models.ranker import Output, PieceText, TokenBatch, Words
    from glassrank.models.word_tables import SubwordTable

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

_OUTSIDE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

# Found when they are first asked for: most need PyTorch, and who only ranks may not.
_HOMES = {
    "contract": ("PieceRanker", "Ranker", "WordRanker", "WordTable"),
    "ensemble": ("Ensemble",),
    "families": ("MODELS", "find_family", "meant", "name_of"),
    "ranker": ("Output", "PieceText", "TokenBatch", "Words"),
    "word_tables": ("SubwordTable",),
}


def is_outside(name: str) -> bool:
    """Whether it is written as `module:Class`."""
    return _OUTSIDE.fullmatch(name) is not None


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
