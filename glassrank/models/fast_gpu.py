"""Transformers on a GPU, in fewer steps: a query of MORES and of late-interaction models, and MORES
over stored keys and values.

A query goes through embeddings, and layers whose norms are folded into what follows them
(`backends/gpu/few_rows.py` has the steps). One query of MORES meets many documents, whose keys and
values (Reuse-S2) lie in the GPU's memory as a store has them. Attention reads each once; sums and
norms are one step; of the last block, only what [CLS]'s row needs is computed. The plain forms are
`backends/transformer.py`, `mores.py` and `bi_encoders.py`, and give the same, but for rounding.

Needs Triton: nothing imports this file unless the model is on a GPU.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.attention import SelfAttention
from glassrank.backends.gpu.attention import attend, cross_attend, look_at_rows
from glassrank.backends.gpu.contextual import add_norm
from glassrank.backends.gpu.few_rows import Folded, Rows, attended, linear
from glassrank.backends.match import unit
from glassrank.backends.transformer import Embeddings, Encoder, FeedForward, Layer
from glassrank.models.bi_encoders import LateInteraction
from glassrank.models.contract import Ranker, TokenBatch, Words
from glassrank.models.mores import MORES, InteractionBlock

LONGEST_QUERY = 128
"""In pieces: what a program of the query's layers has room for."""


def is_foldable(encoder: Encoder) -> bool:
    """Whether it is of the one kind that is made here."""
    return encoder.config.activation == "gelu" and not encoder.config.distances


class QueryLayers:
    """Copies of weights: what the model learns later is not seen here."""

    def __init__(self, embeddings: Embeddings, layers: Sequence[Layer]) -> None:
        self._pieces = embeddings.pieces.weight  # (V, H)
        self._where = (
            (embeddings.positions.weight + embeddings.types.weight[0]).detach().float()
        )  # (L, H)
        norm, self._layers = embeddings.norm, []
        for layer in layers:
            self._layers.append(_QueryLayer(layer, norm))
            norm = layer.feed_forward.norm
        self.norm = norm
        """Of the last rows."""

    def before_norm(self, ids: Tensor, length: Tensor) -> Tensor:
        """(Q,), of which the first `length` (1,) are meant, to (Q, H) in float32."""
        rows = self._pieces[ids] + self._where[: len(ids)]  # (Q, H)
        for layer in self._layers:
            rows = layer(rows, length)
        return rows

    def __call__(self, ids: Tensor, length: Tensor) -> Tensor:
        """(Q,) to (Q, H), in float32."""
        rows, norm = self.before_norm(ids, length), self.norm
        gain, bias = norm.weight.detach().float(), norm.bias.detach().float()
        return functional.layer_norm(rows, gain.shape, gain, bias, norm.eps)


class _QueryLayer:
    """A layer over one query's rows, from before one norm to before the next."""

    def __init__(self, layer: Layer, norm: nn.LayerNorm) -> None:
        attention, feed = layer.attention, layer.feed_forward
        self._heads, self._norms = attention.heads, (norm, attention.norm)
        self._three, self._output = (
            Folded(attention.query_key_value, norm),
            Folded(attention.output),
        )
        self._inner, self._outer = Folded(feed.inner, attention.norm), Folded(feed.outer)

    def __call__(self, rows: Tensor, length: Tensor) -> Tensor:
        before, between = self._norms
        three, spread = linear(rows, self._three)  # (Q, 3 * heads * A)
        seen = attended(three, length, self._output, self._heads, Rows(rows, spread, before))
        inside, spread = linear(seen, self._inner, gelu=True)  # (Q, F)
        made, _ = linear(inside, self._outer, residual=Rows(seen, spread, between))
        return made


def side_by_side(*linears: nn.Linear) -> nn.Linear:
    """One layer for several that read the same, their outputs behind one another."""
    weight = torch.cat([each.weight.detach() for each in linears])  # (sum of N, K)
    made = nn.Linear(weight.shape[1], len(weight), device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(
            torch.cat(
                [
                    each.weight.new_zeros(len(each.weight)) if each.bias is None else each.bias
                    for each in linears
                ]
            )
        )
    return made


class StoredMORES:
    """A model's query and interaction modules, for one query at a time."""

    def __init__(self, model: MORES) -> None:
        self._embeddings, self._query_layers = model.query.embeddings, model.query_layers()
        self._blocks, head = model.interaction.stack(), model.interaction.head
        self._head = head.weight.detach().float(), head.bias.detach().float()
        self._dtype, self._two_logits = head.weight.dtype, model.config.two_logits

    @classmethod
    def of(cls, model: Ranker) -> "StoredMORES | None":
        """None for models that this is not made for."""
        if not isinstance(model, MORES) or not next(model.parameters()).is_cuda:
            return None
        return cls(model) if model.config.query.activation == "gelu" else None

    @cached_property  # whoever only scores does not need another copy of these weights
    def _queries(self) -> QueryLayers:
        return QueryLayers(self._embeddings, self._query_layers)

    @torch.no_grad()
    def encode_query(self, batch: TokenBatch) -> Words:
        """A query (1, Q), which may be padded: rows (1, Q, H), those of padding without meaning."""
        length = batch.mask.sum(1, dtype=torch.int32)  # (1,)
        made = self._queries(batch.ids[0], length)  # (Q, H)
        return Words(made.to(self._dtype)[None], batch.mask, batch.mask)

    @torch.no_grad()
    def scores(
        self,
        query: Tensor,
        rows: Tensor,
        scales: Tensor | None,
        starts: Tensor,
        lengths: Tensor,
    ) -> Tensor:
        """One query (1, Q, H) without padding, and documents that are runs of rows (T, S), with as
        many scales (T, V) as they hold vectors if they are int8: scores (B,)."""
        x = query.to(self._dtype)
        *before, last = range(len(self._blocks))
        for number in before:
            block = self._blocks[number]
            x = _crossed(block, x, rows, scales, starts, lengths, number)  # (B, Q, H)
            x = _whole_layer(block.layer, x)
        block = self._blocks[last]
        x = _crossed(block, x, rows, scales, starts, lengths, last)
        first = _first_row(block.layer, x)  # (B, H)
        logits = functional.linear(first.float(), *self._head)
        return logits[:, 1] - logits[:, 0] if self._two_logits else logits[:, 0]


def _crossed(
    block: InteractionBlock,
    x: Tensor,
    rows: Tensor,
    scales: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    number: int,
) -> Tensor:
    """Attention to the documents: (1 or B, Q, H) to (B, Q, H)."""
    cross = block.cross
    seen = cross_attend(cross.query(x), rows, scales, starts, lengths, cross.heads, number)
    return _added(cross.output(seen), x, cross.norm)


def _whole_layer(layer: Layer, x: Tensor) -> Tensor:
    attention = layer.attention
    seen = attend(
        attention.query_key_value(x), None, attention.heads, _scale(attention)
    )  # (B, Q, H)
    return _fed(layer.feed_forward, _added(attention.output(seen), x, attention.norm))


def _first_row(layer: Layer, x: Tensor) -> Tensor:
    """`SelfAttention.first_row` and what follows: (B, Q, H) to (B, H)."""
    attention, docs = layer.attention, len(x)
    size = attention.output.in_features  # of all heads, S
    weight, bias = attention.query_key_value.weight, attention.query_key_value.bias
    first = x[:, 0]  # (B, H)
    asked = functional.linear(first, weight[:size], bias[:size])
    key, value = weight[size:].view(2, attention.heads, -1, x.shape[2])  # each (heads, A, H)
    split = asked.view(docs, attention.heads, -1).transpose(0, 1)  # (heads, B, A)
    seen = look_at_rows(torch.bmm(split, key), x, split.shape[-1])  # (heads, B, H)
    values = torch.bmm(seen, value.transpose(1, 2))  # (heads, B, A)
    joined = values.transpose(0, 1).flatten(1) + bias[2 * size :]  # (B, S)
    return _fed(layer.feed_forward, _added(attention.output(joined), first, attention.norm))


def _fed(feed: FeedForward, x: Tensor) -> Tensor:
    return _added(feed.outer(functional.gelu(feed.inner(x))), x, feed.norm)


def _added(x: Tensor, residual: Tensor, norm: nn.LayerNorm) -> Tensor:
    return add_norm(x, residual, norm.weight, norm.bias, norm.eps, in_root=True)


def _scale(attention: SelfAttention) -> float:
    return 1 / math.sqrt(attention.output.in_features // attention.heads)


class QueriesOnGPU:
    """A model's encoder, with projection and weights as one layer behind it."""

    def __init__(self, model: LateInteraction) -> None:
        self._layers = QueryLayers(model.encoder.embeddings, model.encoder.stack())
        both = side_by_side(model.projection, model.term_weight)
        self._projected = Folded(both, self._layers.norm)

    @classmethod
    def of(cls, model: Ranker) -> "QueriesOnGPU | None":
        """None for models that this is not made for."""
        if not isinstance(model, LateInteraction) or not is_foldable(model.encoder):
            return None
        return cls(model)

    @torch.no_grad()
    def encode_query(self, batch: TokenBatch) -> Words:
        """A query (1, Q), which may be padded: vectors (1, Q, E), those of padding without
        meaning."""
        length = batch.mask.sum(1, dtype=torch.int32)  # (1,)
        rows = self._layers.before_norm(batch.ids[0], length)  # (Q, H)
        made = linear(rows, self._projected)[0].float()  # (Q, E + 1)
        weights = 2 * torch.sigmoid(made[:, -1]) * batch.mask[0]  # (Q,)
        return Words(unit(made[:, :-1])[None], batch.mask, weights[None])
