"""Prunes a trained model: keeps some layers of its encoder, with fewer heads and feed-forward units
(`start.layers`, `heads`, `feed_forward`). `loss.vectors` then teaches it the whole model's vectors.
"""

from dataclasses import replace

import torch
from torch import Tensor

from glassrank.backends.transformer import Layer
from glassrank.errors import InputError
from glassrank.models import Ranker
from glassrank.models.bi_encoders import LateInteraction
from glassrank.research.train.config import StartConfig


def prune(model: Ranker, start: StartConfig) -> LateInteraction:
    """Keep the layers that `start` names, and their heads and units with the largest weights."""
    if not isinstance(model, LateInteraction):
        raise InputError(
            f"start.layers: expected a kernel_bert or maxsim model, found {model.name}"
        )
    encoder = model.config.encoder
    if not all(0 <= number < encoder.layers for number in start.layers):
        raise InputError(
            f"start.layers: start.model has layers 0 to {encoder.layers - 1}, found "
            f"{list(start.layers)}"
        )
    inner = _check_size("feed_forward", start.feed_forward, encoder.feed_forward)
    heads = _check_size("heads", start.heads, encoder.heads)
    fewer = replace(encoder, layers=len(start.layers), feed_forward=inner)
    if heads < encoder.heads:
        if encoder.distances:
            raise InputError(
                "start.heads: the layers of start.model share relative positions; leave it out"
            )
        fewer = replace(fewer, heads=heads, head_size=encoder.attention // encoder.heads)
    small = type(model)(replace(model.config, encoder=fewer))
    layers = model.encoder.stack()
    small.encoder.embeddings.load_state_dict(model.encoder.embeddings.state_dict())
    if small.encoder.distances is not None and model.encoder.distances is not None:
        small.encoder.distances.load_state_dict(model.encoder.distances.state_dict())
    for layer, number in zip(small.encoder.stack(), start.layers, strict=True):
        layer.load_state_dict(
            _prune_heads(_prune_feed_forward(layers[number], inner), encoder.heads, heads)
        )
    rest = {name: w for name, w in model.state_dict().items() if not name.startswith("encoder.")}
    rest.pop("first_stage_weight", None)
    small.load_state_dict(rest, strict=False)
    return small


def _prune_feed_forward(layer: Layer, inner: int) -> dict[str, Tensor]:
    weights = layer.state_dict()
    first, bias, second = (
        f"feed_forward.{name}" for name in ("inner.weight", "inner.bias", "outer.weight")
    )
    lengths = weights[first].norm(dim=1) * weights[second].norm(dim=0)  # (F,)
    kept = lengths.topk(inner).indices.sort().values  # (inner,)
    weights[first], weights[bias] = weights[first][kept], weights[bias][kept]
    weights[second] = weights[second][:, kept]
    return weights


def _prune_heads(weights: dict[str, Tensor], count: int, kept: int) -> dict[str, Tensor]:
    if kept == count:
        return weights
    first, bias, second = (
        f"attention.{name}"
        for name in ("query_key_value.weight", "query_key_value.bias", "output.weight")
    )
    three = torch.unflatten(weights[first], 0, (3, count, -1))  # (3, heads, A, H)
    out = torch.unflatten(weights[second], 1, (count, -1))  # (H, heads, A)
    lengths = three[2].flatten(1).norm(dim=1) * out.transpose(0, 1).flatten(1).norm(dim=1)
    best = lengths.topk(kept).indices.sort().values  # (kept,)
    weights[first] = three[:, best].flatten(0, 2)
    weights[bias] = torch.unflatten(weights[bias], 0, (3, count, -1))[:, best].flatten()
    weights[second] = out[:, best].flatten(1)
    return weights


def _check_size(name: str, wanted: int | None, all_of_them: int) -> int:
    if wanted is None:
        return all_of_them
    if not 0 < wanted <= all_of_them:
        raise InputError(f"start.{name}: start.model has {all_of_them}, found {wanted}")
    return wanted
