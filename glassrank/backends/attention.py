"""Attention with several heads (J. Devlin et al., "BERT", NAACL 2019), and a cheaper order of the
same sums for few query rows: `attend_unprojected` projects the queries instead of every row, since
q · (W x) is (W' q) · x, and a mean of projected rows is the projection of their mean.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

NEVER = -1e32
"""Added to the scores of padding. It is finite, so that a row of padding alone gives no NaN."""


def make_key_bias(mask: Tensor, like: Tensor) -> Tensor | None:
    """What is added to scores so that no row attends to padding: (B, L) to (B, 1, 1, L).

    None where there is no padding, which is the fastest case. Only a mask on the CPU is tested, and
    it may stay there while the rest is on a GPU: testing it there would wait for the GPU.
    """
    if mask.device.type == "cpu" and bool(mask.all()):
        return None
    return ((1 - mask.float()) * NEVER).to(like)[:, None, None]


def split_heads(rows: Tensor, heads: int) -> Tensor:
    """(B, L, H) to (B, heads, L, A), without a copy."""
    return torch.unflatten(rows, -1, (heads, -1)).transpose(1, 2)


def join_heads(attended: Tensor) -> Tensor:
    """(B, heads, L, A) to (B, L, H)."""
    return attended.transpose(1, 2).flatten(2)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    dropout: float = 0.0,
    maps: list[Tensor] | None = None,
) -> Tensor:
    """(B, heads, Q, A) of (B, heads, L, A); `maps` collects the weights (B, heads, Q, L)."""
    query = query.expand(len(key), -1, -1, -1)
    if maps is None:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=dropout
        )
    weights = _shares(_scaled(query) @ key.transpose(-1, -2), bias)  # (B, heads, Q, L)
    maps.append(weights)
    return functional.dropout(weights, dropout) @ value


def attend_unprojected(
    query: Tensor,
    rows: Tensor,
    weight: Tensor,
    value_bias: Tensor,
    bias: Tensor | None,
    dropout: float = 0.0,
) -> Tensor:
    """What `attend` gives for the keys and values that `weight` (2H, X) makes of rows (B, L, X).

    The keys' own bias is not needed: it adds the same to all scores of a query.
    """
    heads, size = query.shape[1], query.shape[-1]
    key, value = weight.view(2, heads, size, -1)  # each (heads, A, X)
    asked = per_head(_scaled(query), key).flatten(1, 2)  # (1 or B, heads * Q, X)
    scores = asked.expand(len(rows), -1, -1) @ rows.transpose(1, 2)  # (B, heads * Q, L)
    weights = _shares(scores, None if bias is None else bias[:, 0])
    means = functional.dropout(weights, dropout) @ rows  # (B, heads * Q, X)
    values = per_head(torch.unflatten(means, 1, (heads, -1)), value.transpose(1, 2))
    return values + value_bias.view(heads, 1, size)  # (B, heads, Q, A)


def per_head(rows: Tensor, weights: Tensor) -> Tensor:
    """Each head's rows by its own matrix: (B, heads, Q, X) and (heads, X, Y) to (B, heads, Q, Y).

    One product for each head, however many B: the matrices are not repeated.
    """
    batch, _, count, _ = rows.shape
    together = rows.transpose(0, 1).flatten(1, 2)  # (heads, B * Q, X)
    return torch.unflatten(together @ weights, 1, (batch, count)).transpose(0, 1)


def _scaled(query: Tensor) -> Tensor:
    return query / math.sqrt(query.shape[-1])


def _shares(scores: Tensor, bias: Tensor | None) -> Tensor:
    return (scores if bias is None else scores + bias).softmax(-1)


class SelfAttention(nn.Module):
    """norm(x + attention of x to itself)."""

    def __init__(
        self, size: int, heads: int, dropout: float, epsilon: float, total: int | None = None
    ) -> None:
        """`total` values of all heads, as many as `size` unless told otherwise."""
        super().__init__()
        total = size if total is None else total
        self.heads = heads
        self.query_key_value = nn.Linear(size, 3 * total)
        self.output = nn.Linear(total, size)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(size, eps=epsilon)

    def forward(self, x: Tensor, bias: Tensor | None, maps: list[Tensor] | None = None) -> Tensor:
        """(B, L, H) to (B, L, H); `maps` collects the shares of attention."""
        three = self.query_key_value(x).unflatten(-1, (3, self.heads, -1))  # (B, L, 3, heads, A)
        query, key, value = three.permute(2, 0, 3, 1, 4)  # each (B, heads, L, A)
        attended = attend(query, key, value, bias, self._dropped, maps)
        return self._added(x, join_heads(attended))

    def first_row(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Only the first row of what `forward` gives, (B, H): no other row is projected."""
        size = self.output.in_features  # of all heads
        weight, own_bias = self.query_key_value.weight, self.query_key_value.bias
        first = x[:, 0]  # (B, H)
        query = functional.linear(first, weight[:size], own_bias[:size])[:, None]  # (B, 1, H)
        heads, value_bias = split_heads(query, self.heads), own_bias[2 * size :]
        attended = attend_unprojected(
            heads, x, weight[size:], value_bias, bias, self._dropped
        )  # (B, heads, 1, A)
        return self._added(first, attended.flatten(1))

    def _added(self, x: Tensor, attended: Tensor) -> Tensor:
        result: Tensor = self.norm(x + self.dropout(self.output(attended)))
        return result

    @property
    def _dropped(self) -> float:
        return self.dropout.p if self.training else 0.0
