"""What the PACRR family shares: n-grams of the match matrix, k-max pooling, and dense layers that
turn each query word's strongest signals into one score."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.match import ngram_name

_ALIKE = 1e-4
"""Far above the rounding of a similarity, far below any difference that means something."""


def k_max(
    rows: Tensor,
    k: int,
    mask: Tensor | None = None,
    ends: Sequence[int] | None = None,
    earliest: bool = False,
) -> tuple[Tensor, Tensor]:
    """The k largest values of each row (…, D) and where they stand, both (…, len(ends) * k).

    `mask` (…, D) says which columns may be chosen: padding must not win over negative values.
    Where fewer than k columns are left, the values are filled with zeros, at place -1.

    With `ends`, also of the row's first columns only, one time for each end: a cascade that tells
    early signals from late ones.

    With `earliest`, values that differ by no more than rounding count as equal and the earlier one
    is chosen, so that a word that occurs twice is found at the same place however the batch was
    laid out. It matters where something is read at the places; the values hardly change.
    """
    columns = rows.shape[-1]
    real = torch.ones_like(rows, dtype=torch.bool) if mask is None else mask.expand(rows.shape) > 0
    keys = rows.detach()
    if earliest:
        steps = (keys.float() / _ALIKE).round().long()  # (…, D)
        keys = steps * columns - torch.arange(columns, device=rows.device)  # no two are equal
    lowest = float("-inf") if keys.is_floating_point() else torch.iinfo(keys.dtype).min
    keys = keys.masked_fill(~real, lowest)
    values, places = [], []
    for end in (columns,) if ends is None else ends:
        part = keys[..., :end]
        where = part.topk(min(k, part.shape[-1]), dim=-1, sorted=True).indices  # (…, k or fewer)
        empty = ~real.gather(-1, where)
        missing = k - where.shape[-1]
        top = rows.gather(-1, where).masked_fill(empty, 0)
        values.append(functional.pad(top, (0, missing)))
        places.append(functional.pad(where.masked_fill(empty, -1), (0, missing), value=-1))
    return torch.cat(values, -1), torch.cat(places, -1)


def window_padding(n: int, centred: bool) -> tuple[int, int]:
    """Zeros before and after, so that n-wide windows leave the length as it is.

    Centred is TensorFlow's "same": one on each side for 3, after the end alone for 2.
    """
    before = (n - 1) // 2 if centred else 0
    return before, n - 1 - before


class NGrams(nn.Module):
    """Square convolutions that find n-grams of the query in the document, for n from 2 on.

    Each cell's value belongs to the query word and document word at which its window is centred
    (or begins). Windows of real words may reach over the end, into zeros, whether these stand in
    the batch or not; windows of padding are left out by the mask that the pooling gets. So a
    document's last words count, and how far it was padded does not.
    """

    def __init__(
        self,
        largest: int,
        filters: int,
        channels: int = 1,
        *,
        centred: bool = True,
        relu: bool = True,
        learned_pooling: bool = False,
    ) -> None:
        super().__init__()
        self.sizes = range(2, largest + 1)
        self.centred = centred
        self.relu = relu
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, filters, n) for n in self.sizes)
        # Over the filters: a 1x1 convolution for each n-gram size, or their maximum.
        self.pools = nn.ModuleList(
            nn.Conv2d(filters, 1, 1) for _ in (self.sizes if learned_pooling else ())
        )
        self.apply(glorot)

    def forward(self, matrix: Tensor) -> dict[str, Tensor]:
        """(B, C, Q, D) to a matrix (B, Q, D) for each n-gram size, by name."""
        matrices = {}
        for i, (n, convolution) in enumerate(zip(self.sizes, self.convolutions, strict=True)):
            sides = window_padding(n, self.centred)
            signals = convolution(functional.pad(matrix, sides * 2))  # (B, F, Q, D)
            if self.pools:
                signals = torch.relu(signals) if self.relu else signals
                pooled = self.pools[i](signals).squeeze(1)  # (B, Q, D)
            else:
                pooled = signals.amax(1)  # (B, Q, D); ReLU afterwards gives the same, for less
            matrices[ngram_name(n)] = torch.relu(pooled) if self.relu else pooled
        return matrices


class RowsToScore(nn.Module):
    """All query words' signals (B, Q, F), laid side by side, through dense layers to a score."""

    def __init__(
        self,
        query_length: int,
        features: int,
        hidden: Sequence[int],
        *,
        last_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.query_length = query_length
        sizes = (query_length * features, *hidden)
        self.hidden = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))
        self.last = nn.Linear(sizes[-1], 1, bias=last_bias)
        self.dropout = nn.Dropout(dropout)
        self.apply(glorot)

    def forward(self, rows: Tensor) -> Tensor:
        """(B, Q, F), Q at most the length it was made for, to (B,)."""
        missing = self.query_length - rows.shape[1]
        x = functional.pad(rows, (0, 0, 0, missing)).flatten(1)  # (B, query_length * F)
        for layer in self.hidden:
            x = self.dropout(torch.relu(layer(x)))
        score: Tensor = self.last(x).squeeze(-1)  # (B,)
        return score


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Shares that add up to 1 over the last axis where the mask is 1, and are 0 elsewhere."""
    lowest = torch.finfo(scores.dtype).min  # finite, so that a row of padding alone gives no NaN
    return scores.masked_fill(mask == 0, lowest).softmax(-1) * mask


def glorot(module: nn.Module) -> None:
    """Keras' way to begin, which the family's authors rely on."""
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
