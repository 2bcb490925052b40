"""A model in the form that ranks fastest: the same weights, rounded where that is faster."""

import copy
from functools import lru_cache

import torch

from glassrank.models.contract import Ranker
from glassrank.models.pieces import PieceRanker
from glassrank.nn.contextual import ContextualLayers
from glassrank.nn.contextual_cpu import ContextualOnCPU
from glassrank.nn.contextual_gpu import ContextualOnGPU


def fast_form(model: Ranker) -> Ranker:
    """For encoding documents, live or for a store, without gradients. A transformer's `interact`
    is rounded too; models without contextual layers come back as they are."""
    on_gpu = next(model.parameters()).is_cuda
    dtype = torch.bfloat16 if on_gpu or _multiplies_bf16() else torch.float32
    if isinstance(model, PieceRanker):
        return model if dtype == torch.float32 else model.rounded(dtype)
    layers = getattr(model, "contextual", None)
    if not isinstance(layers, ContextualLayers):
        return model
    fast = copy.copy(model)
    fast._modules = dict(model._modules)  # its own, so that the trained model keeps its layers
    fast.contextual = (ContextualOnGPU if on_gpu else ContextualOnCPU)(layers, dtype)
    return fast.eval()


@lru_cache(maxsize=1)
def _multiplies_bf16() -> bool:
    """Whether this processor has matrix units for bfloat16; elsewhere it would be slower."""
    try:
        from glassrank.nn.amx import usable
    except ImportError:  # no numba, as on a machine that only trains
        return False
    return usable()
