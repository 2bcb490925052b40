"""MORES on a GPU, in fewer steps: one query, and its interaction with stored keys and values.

One query meets many documents, whose keys and values (Reuse-S2) lie in the GPU's memory as a store
has them. Attention reads each once; sums and norms are one step; of the last block, only what
[CLS]'s row needs is computed. The plain form is `mores.py`, and gives the same, but for rounding.

Needs Triton: nothing imports this file unless the model is on a GPU.
"""

import math
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.gpu.query_layers import QueryLayers
from glassrank.backends.transformer import FeedForward, Layer
from glassrank.models.model import TokenBatch, TokenEmbeddings
from glassrank.research.papers.gpu_attention import attend, cross_attend, look_at_rows
from glassrank.research.papers.gpu_contextual import add_norm

if TYPE_CHECKING:
    from glassrank.research.papers.mores import MORES


class StoredMORES:
    """A model's query and interaction modules, for one query at a time."""

    def __init__(self, model: "MORES") -> None:
        self._embeddings, self._query_layers = model.query.embeddings, model.query_layers()
        self._blocks, head = model.interaction.stack(), model.interaction.head
        self._head = head.weight.detach().float(), head.bias.detach().float()
        self._dtype, self._to_score = head.weight.dtype, model.interaction.to_score

    @cached_property  # whoever only scores does not need another copy of these weights
    def _queries(self) -> QueryLayers:
        return QueryLayers(self._embeddings, self._query_layers)

    @torch.no_grad()
    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        """A query (1, Q), which may be padded: rows (1, Q, H), those of padding without meaning."""
        length = batch.mask.sum(1, dtype=torch.int32)  # (1,)
        made = self._queries(batch.ids[0], length)  # (Q, H)
        return TokenEmbeddings(made.to(self._dtype)[None], batch.mask, batch.mask)

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
        for number, block in enumerate(self._blocks):
            cross = block.cross
            asked = cross.query(x)
            seen = cross_attend(asked, rows, scales, starts, lengths, cross.heads, number)
            x = _added(cross.output(seen), x, cross.norm)  # (B, Q, H)
            is_last = number == len(self._blocks) - 1
            x = (_first_row if is_last else _whole_layer)(block.layer, x)  # last (B, H)
        return self._to_score(functional.linear(x.float(), *self._head))


def _whole_layer(layer: Layer, x: Tensor) -> Tensor:
    attention = layer.attention
    scale = 1 / math.sqrt(attention.output.in_features // attention.heads)
    seen = attend(attention.query_key_value(x), None, attention.heads, scale)  # (B, Q, H)
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
