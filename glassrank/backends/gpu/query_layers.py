"""A transformer over one query on a GPU, with its norms folded into the layers behind them
(`folded_layers.py`); the plain form is `backends/transformer.py`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.gpu.folded_layers import Folded, Rows, attended, linear
from glassrank.backends.match import unit
from glassrank.backends.transformer import Embeddings, Encoder, Layer

LONGEST_QUERY = 128
"""In subwords: what a program of the query's layers has room for."""


def is_foldable(encoder: Encoder) -> bool:
    """Whether this encoder has a form here: GELU, and no relative positions."""
    return encoder.config.activation == "gelu" and not encoder.config.distances


class QueryLayers:
    """An encoder's layers over one query, with copies of its weights."""

    def __init__(self, embeddings: Embeddings, layers: Sequence[Layer]) -> None:
        self._pieces = embeddings.pieces.weight  # (V, H)
        where = embeddings.positions.weight + embeddings.types.weight[0]
        self._where = where.detach().float()  # (L, H)
        norm, self._layers = embeddings.norm, []
        for layer in layers:
            self._layers.append(_QueryLayer(layer, norm))
            norm = layer.feed_forward.norm
        self.norm = norm
        """Of the last rows."""

    def before_norm(self, ids: Tensor, length: Tensor) -> Tensor:
        """Ids (Q,), of which the first `length` (1,) count, to rows before the last norm."""
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
    """A layer over one query's rows, from before one norm to before the next one."""

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


def concat_linears(*linears: nn.Linear) -> nn.Linear:
    """One linear layer for several with the same input; outputs are concatenated."""
    weight = torch.cat([each.weight.detach() for each in linears])  # (sum of N, K)
    biases = (
        each.weight.new_zeros(len(each.weight)) if each.bias is None else each.bias.detach()
        for each in linears
    )
    made = nn.Linear(weight.shape[1], len(weight), device="meta")
    made.weight, made.bias = nn.Parameter(weight), nn.Parameter(torch.cat(list(biases)))
    return made


class QueryEmbedder:
    """An encoder over one query, with a projection and term weights as one layer behind it."""

    def __init__(self, encoder: Encoder, projection: nn.Linear, term_weight: nn.Linear) -> None:
        self._layers = QueryLayers(encoder.embeddings, encoder.stack())
        self._projected = Folded(concat_linears(projection, term_weight), self._layers.norm)

    @torch.no_grad()
    def __call__(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """A query (1, Q), which may be padded, to unit vectors (1, Q, E) and weights (1, Q). The
        vectors of padding mean nothing."""
        length = mask.sum(1, dtype=torch.int32)  # (1,)
        rows = self._layers.before_norm(ids[0], length)  # (Q, H)
        made = linear(rows, self._projected)[0].float()  # (Q, E + 1)
        weights = 2 * torch.sigmoid(made[:, -1]) * mask[0]  # (Q,)
        return unit(made[:, :-1])[None], weights[None]
