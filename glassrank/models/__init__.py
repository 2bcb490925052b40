"""The contract that every model follows, and the families that serve: late interaction, single
vectors, published models. The papers' models are in `research/papers`; all are found by name.

A model of somebody else's is named `module:Class`.
"""

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassrank.models.families import MODELS, find_family, name_of, suggest_name
    from glassrank.models.model import (
        Model,
        ModelInfo,
        Output,
        SubwordText,
        TokenBatch,
        TokenEmbeddings,
    )
    from glassrank.models.torch_models import EmbeddingTable, Ranker, SubwordRanker, WordRanker

__all__ = [
    "MODELS",
    "EmbeddingTable",
    "Model",
    "ModelInfo",
    "Output",
    "Ranker",
    "SubwordRanker",
    "SubwordText",
    "TokenBatch",
    "TokenEmbeddings",
    "WordRanker",
    "find_family",
    "is_outside",
    "name_of",
    "suggest_name",
]

_OUTSIDE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

# Imported when first used: most need PyTorch, and a search may not.
_HOMES = {
    "families": ("MODELS", "find_family", "name_of", "suggest_name"),
    "model": ("Model", "ModelInfo", "Output", "SubwordText", "TokenBatch", "TokenEmbeddings"),
    "torch_models": ("EmbeddingTable", "Ranker", "SubwordRanker", "WordRanker"),
}


def is_outside(name: str) -> bool:
    """Whether a model's name is written as `module:Class`."""
    return _OUTSIDE.fullmatch(name) is not None


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
