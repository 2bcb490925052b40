"""A model in the form that ranks fastest on a GPU: the same weights, rounded where that is faster.
On a CPU, PyTorch computes models as they were trained."""

import copy

import torch
from torch import nn

from glassrank.backends import gpu
from glassrank.backends.gpu import device_named
from glassrank.backends.transformer import ContextualLayers
from glassrank.models.contract import Ranker


def placed(model: Ranker, device: str, *, exact: bool) -> tuple[Ranker, Ranker]:
    """A model on a device, and the form in which it encodes documents there, and scores them."""
    there = model.to(device_named(device)).eval()
    return there, there if exact else fast_form(there)


def fast_form(model: Ranker) -> Ranker:
    """For encoding documents, live or for a store, without gradients. A transformer's `interact`
    is rounded too; models without contextual layers come back as they are."""
    if not next(model.parameters()).is_cuda:
        return model
    layers = getattr(model, "contextual", None)
    if not isinstance(layers, ContextualLayers):
        return model.rounded(torch.bfloat16)
    if not gpu.usable():
        return model
    from glassrank.backends.gpu.contextual import ContextualOnGPU

    return _with(model, contextual=ContextualOnGPU(layers, torch.bfloat16))


def _with(model: Ranker, **modules: nn.Module) -> Ranker:
    """The same model but for these, which the trained one keeps as they are."""
    fast = copy.copy(model)
    fast._modules = {**model._modules, **modules}
    return fast.eval()
