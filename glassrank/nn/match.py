"""The match matrix, how alike each query word and each document word are, and its k-max pooling:
the strongest signals of each row, strongest first."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

_EPSILON = 1e-13
_ALIKE = 1e-4
"""Far above the rounding of a similarity, far below any difference that means something."""


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length one; a zero vector stays zero, so that its similarity is 0."""
    lengths: Tensor = vectors.norm(dim=-1, keepdim=True)
    return vectors / (lengths + _EPSILON)


def match_matrix(query: Tensor, doc: Tensor, query_mask: Tensor, doc_mask: Tensor) -> Tensor:
    """Cosines of unit vectors (B, Q, E) and (B, D, E), zero where either side is padding."""
    cosines = query @ doc.transpose(-1, -2)  # (B, Q, D)
    return cosines * pair_mask(query_mask, doc_mask)


def pair_mask(query_mask: Tensor, doc_mask: Tensor) -> Tensor:
    """1 where a query word (B, Q) meets a document word (B, D), else 0."""
    return query_mask[:, :, None] * doc_mask[:, None, :]  # (B, Q, D)


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
