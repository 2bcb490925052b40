"""A model in the form that ranks fastest: the same weights, rounded where that is faster."""

import copy
from functools import lru_cache

import torch
from torch import nn

from glassrank.models.contract import Ranker
from glassrank.nn import gpu
from glassrank.nn.cpu.doc_encoders import ContextualOnCPU, DocsEncoderOnCPU, packs
from glassrank.nn.gpu import device_named
from glassrank.nn.transformer import ContextualLayers, Encoder


def placed(model: Ranker, device: str, *, exact: bool) -> tuple[Ranker, Ranker]:
    """A model on a device, and the form in which it encodes documents there, and scores them."""
    there = model.to(device_named(device)).eval()
    return there, there if exact else fast_form(there)


def fast_form(model: Ranker) -> Ranker:
    """For encoding documents, live or for a store, without gradients. A transformer's `interact`
    is rounded too; models without contextual layers come back as they are."""
    on_gpu = next(model.parameters()).is_cuda
    dtype = torch.bfloat16 if on_gpu or _multiplies_bf16() else torch.float32
    layers, encoder = (getattr(model, name, None) for name in ("contextual", "encoder"))
    if isinstance(layers, ContextualLayers):
        if not on_gpu:
            return _with(model, contextual=ContextualOnCPU(layers, dtype))
        if not gpu.usable():
            return model
        from glassrank.nn.gpu.contextual import ContextualOnGPU

        return _with(model, contextual=ContextualOnGPU(layers, dtype))
    if dtype == torch.float32:
        return model
    if not on_gpu and model.stores_words and isinstance(encoder, Encoder) and packs(encoder):
        return _with(model, encoder=DocsEncoderOnCPU(encoder, dtype))
    return model.rounded(dtype)


def query_form(model: Ranker) -> Ranker:
    """For encoding one query at a time without gradients: on a CPU, by compiled code. Models whose
    queries pass no transformer come back as they are."""
    if next(model.parameters()).is_cuda:
        return model
    try:
        from glassrank.nn.cpu.query_encoders import ContextualQueryOnCPU, EncoderOnCPU
    except ImportError:  # no numba, as on a machine that only trains
        return model
    layers, encoder = (getattr(model, name, None) for name in ("contextual", "encoder"))
    if isinstance(layers, ContextualLayers) and len(layers.layers):
        return _with(model, contextual=ContextualQueryOnCPU(layers))
    if isinstance(encoder, Encoder) and model.stores_words:  # others read it with a document
        return _with(model, encoder=EncoderOnCPU(encoder))
    return model


def _with(model: Ranker, **modules: nn.Module) -> Ranker:
    """The same model but for these, which the trained one keeps as they are."""
    fast = copy.copy(model)
    fast._modules = {**model._modules, **modules}
    return fast.eval()


@lru_cache(maxsize=1)
def _multiplies_bf16() -> bool:
    """Whether this processor has matrix units for bfloat16; elsewhere it would be slower."""
    try:
        from glassrank.nn.cpu.amx import usable
    except ImportError:  # no numba, as on a machine that only trains
        return False
    return usable()
