"""The contract that every model follows, and the families that serve; the papers' models are in
`research/papers`. All are found by name; a model of somebody else's is named `module:Class`.
"""

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassrank.models.families import MODELS as MODELS
    from glassrank.models.families import find_family as find_family
    from glassrank.models.families import name_of as name_of
    from glassrank.models.families import suggest_name as suggest_name
    from glassrank.models.model import Model as Model
    from glassrank.models.model import ModelInfo as ModelInfo
    from glassrank.models.model import Output as Output
    from glassrank.models.model import SubwordText as SubwordText
    from glassrank.models.model import TokenBatch as TokenBatch
    from glassrank.models.model import TokenEmbeddings as TokenEmbeddings
    from glassrank.models.torch_models import EmbeddingTable as EmbeddingTable
    from glassrank.models.torch_models import Ranker as Ranker
    from glassrank.models.torch_models import SubwordRanker as SubwordRanker
    from glassrank.models.torch_models import WordRanker as WordRanker

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
