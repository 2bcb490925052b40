"""Attention of one text to another: each query row looks at a document's rows.

The document comes as it was encoded, or already projected to this attention's keys and values,
which do not depend on the query and can be stored.
"""

import torch
from torch import Tensor, nn

from glassrank.nn.attention import attend, attend_unprojected, join_heads, split_heads


class CrossAttention(nn.Module):
    """norm(x + attention of x to the document)."""

    def __init__(
        self, size: int, doc_size: int, heads: int, dropout: float, epsilon: float
    ) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(size, size)
        self.key_value = nn.Linear(doc_size, 2 * size)
        self.output = nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(size, eps=epsilon)

    def project(self, states: Tensor) -> Tensor:
        """Keys and values of a document's rows: (B, D, X) to (B, D, 2, H)."""
        return torch.unflatten(self.key_value(states), -1, (2, -1))

    def forward(
        self, x: Tensor, doc: Tensor, bias: Tensor | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """`x` is (B, Q, H), or (1, Q, H) for one query and all documents: its projection is then
        computed once. `doc` is (B, D, X) as encoded, or (B, D, 2, H) as projected."""
        query = split_heads(self.query(x), self.heads)  # (1 or B, heads, Q, A)
        dropped = self.dropout.p if self.training else 0.0
        if doc.dim() == 3 and maps is None and self._better_unprojected(x):
            value_bias = self.key_value.bias[x.shape[-1] :]
            attended = attend_unprojected(
                query, doc, self.key_value.weight, value_bias, bias, dropped
            )
        else:
            projected = doc if doc.dim() == 4 else self.project(doc)  # (B, D, 2, H)
            both = torch.unflatten(projected, -1, (self.heads, -1)).permute(2, 0, 3, 1, 4)
            key, value = both  # each (B, heads, D, A)
            attended = attend(query, key, value, bias, dropped, maps)
        joined = self.output(join_heads(attended))  # (B, Q, H)
        result: Tensor = self.norm(x + self.dropout(joined))
        return result

    def _better_unprojected(self, x: Tensor) -> bool:
        """A document row costs heads * Q * X multiplications each way, or H * X when projected.
        Learning keeps what lies in between, of which this way has more."""
        return self.heads * x.shape[1] < x.shape[2] and not torch.is_grad_enabled()
