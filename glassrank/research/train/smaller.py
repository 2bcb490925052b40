"""A smaller model out of a trained one: some layers of its encoder, narrower if need be, which
learn to give the vectors that the whole encoder gives.

    [start]
    model = "../../glassrank/models/packaged/default"
    layers = [0, 5]
    feed_forward = 256
    heads = 6

    [loss]
    vectors = 8.0

A score teaches one number for a pair of texts, a vector some hundred numbers for each piece of each
text, judged or not: V. Sanh et al., "DistilBERT, a distilled version of BERT", 2019, begin with
some layers too, and learn the larger model's states.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from glassrank.backends.transformer import Layer
from glassrank.errors import InputError
from glassrank.models import Ranker, TokenBatch, TokenEmbeddings
from glassrank.models.bi_encoders import LateInteraction
from glassrank.research.train.config import StartConfig

_RIDGE = 1e-4
"""Of least squares, in the mean square of a state's values."""


def some_layers(model: Ranker, start: StartConfig) -> LateInteraction:
    """A model with the layers that `start` names, and as many heads, and values between the two
    products of feed-forward layers, as it says: those whose weights are longest."""
    if not isinstance(model, LateInteraction):
        raise InputError(
            f"start.layers: a {model.name} has no layers to choose from; kernel_bert and maxsim do"
        )
    encoder = model.config.encoder
    if not all(0 <= number < encoder.layers for number in start.layers):
        raise InputError(
            f"start.layers: start.model has layers 0 to {encoder.layers - 1}, found "
            f"{list(start.layers)}"
        )
    inner = _kept("feed_forward", start.feed_forward, encoder.feed_forward)
    heads = _kept("heads", start.heads, encoder.heads)
    fewer = replace(encoder, layers=len(start.layers), feed_forward=inner)
    if heads < encoder.heads:
        if encoder.distances:
            raise InputError("start.heads: layers of start.model share what heads know of distance")
        fewer = replace(fewer, heads=heads, head_size=encoder.attention // encoder.heads)
    small = type(model)(replace(model.config, encoder=fewer))
    layers = model.encoder.stack()
    small.encoder.embeddings.load_state_dict(model.encoder.embeddings.state_dict())
    if small.encoder.distances is not None and model.encoder.distances is not None:
        small.encoder.distances.load_state_dict(model.encoder.distances.state_dict())
    for layer, number in zip(small.encoder.stack(), start.layers, strict=True):
        layer.load_state_dict(_fewer_heads(_narrower(layers[number], inner), encoder.heads, heads))
    rest = {name: w for name, w in model.state_dict().items() if not name.startswith("encoder.")}
    rest.pop("first_stage_weight", None)
    small.load_state_dict(rest, strict=False)
    return small


def _narrower(layer: Layer, inner: int) -> dict[str, Tensor]:
    weights = layer.state_dict()
    first, bias, second = (
        f"feed_forward.{name}" for name in ("inner.weight", "inner.bias", "outer.weight")
    )
    lengths = weights[first].norm(dim=1) * weights[second].norm(dim=0)  # (F,)
    kept = lengths.topk(inner).indices.sort().values  # (inner,)
    weights[first], weights[bias] = weights[first][kept], weights[bias][kept]
    weights[second] = weights[second][:, kept]
    return weights


def _fewer_heads(weights: dict[str, Tensor], count: int, kept: int) -> dict[str, Tensor]:
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


def _kept(name: str, wanted: int | None, all_of_them: int) -> int:
    if wanted is None:
        return all_of_them
    if not 0 < wanted <= all_of_them:
        raise InputError(f"start.{name}: start.model has {all_of_them}, found {wanted}")
    return wanted


@torch.no_grad()
def begin_alike(small: Ranker, whole: Ranker, docs: Iterable[TokenBatch]) -> None:
    """The small model's projection begins as the least-squares answer: what is nearest to the whole
    model's vectors of these texts."""
    assert isinstance(small, LateInteraction)
    size = small.config.encoder.size
    moment = small.projection.weight.new_zeros(size, size, dtype=torch.float64)  # (H, H)
    wanted = moment.new_zeros(size, small.config.size)  # (H, E)
    for batch in docs:
        real = batch.mask > 0
        states = small.encoder(batch.ids, batch.mask)[real].double()  # (T, H)
        vectors = whole.encode_doc(batch).vectors[real].double()  # (T, E)
        moment += states.T @ states
        wanted += states.T @ vectors
    moment += _RIDGE * moment.diagonal().mean() * torch.eye(size, device=moment.device)
    if moment.any():
        small.projection.weight.copy_(torch.linalg.solve(moment, wanted).T)


def teacher_of_vectors(model: Ranker) -> Ranker:
    """The whole model, which does not change."""
    if not isinstance(model, LateInteraction):
        raise InputError(
            f"loss.vectors: a {model.name} gives no vectors to learn; take kernel_bert or maxsim "
            "as start.model, or leave it out"
        )
    return model.eval().requires_grad_(False)


def apart(
    ours: tuple[TokenEmbeddings, TokenEmbeddings], theirs: tuple[TokenEmbeddings, TokenEmbeddings]
) -> Tensor:
    """How far vectors are from the whole model's: the mean of 1 - cosine over pieces of queries and
    over those of documents, and of the squared difference of query pieces' weights."""
    (query, doc), (whole_query, whole_doc) = ours, theirs
    weights = (query.idf - whole_query.idf).pow(2)  # (B, Q)
    return (
        _mean(_away(query, whole_query), whole_query.mask)
        + _mean(_away(doc, whole_doc), whole_doc.mask)
        + _mean(weights, whole_query.mask)
    )


def _away(ours: TokenEmbeddings, theirs: TokenEmbeddings) -> Tensor:
    cosine: Tensor = (ours.vectors * theirs.vectors).sum(-1)  # (B, L)
    return 1 - cosine


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """Over pieces that are not padding."""
    return (values * mask).sum() / mask.sum().clamp(min=1)
