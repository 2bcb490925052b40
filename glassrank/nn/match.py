"""The match matrix: how alike each query word and each document word are."""

from torch import Tensor

_EPSILON = 1e-13


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
