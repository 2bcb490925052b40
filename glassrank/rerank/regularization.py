"""Score regularization: documents that are alike answer alike, so their scores are drawn together.

The best candidates are compared by the vectors of their store. Each score moves a part of the way
to the mean of the scores of those that are most like its document. What it gains or loses so, an
explanation shows as a part of its own.

F. Diaz, "Regularizing Ad Hoc Retrieval Scores", CIKM 2005.
"""

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.models.model import Floats, Ints

WEIGHT = 0.5
"""How far scores move, from 0 to 1. This and the other constants were chosen on dev queries and on
two collections without any (docs/decisions/0034-score-regularization.md)."""
_BEST = 64
"""Candidates that are compared, by score: what is below them is not read."""
_NEAREST = 7
"""Candidates that each is drawn to."""
_MOST = 0.75
"""Standard deviations of the scores that count of a difference: one document that answers stays
first, though those about the same thing do not."""


def check_weight(weight: float | None) -> float:
    """The weight, or the default one; refuses what is none."""
    if weight is None:
        return WEIGHT
    if not 0 <= weight <= 1:
        raise InputError(f"regularization must be from 0 to 1, not {weight}")
    return weight


def regularize(scores: NDArray[np.floating], vectors: Floats, weight: float = WEIGHT) -> Floats:
    """What each of n scores gains or loses, from the documents' vectors (n, E), of length 1; 0 for
    a document that has none. None falls below the lowest.

    >>> regularize(np.array([3.0, 2.0, 1.0]), np.float32([[1, 0], [0, 1], [1, 0]])).round(3)
    array([-0.087,  0.   ,  0.087], dtype=float32)
    """
    cosines = np.maximum(vectors @ vectors.T, np.float32(0))  # (n, n)
    np.fill_diagonal(cosines, 0)
    weights = np.square(np.square(np.square(cosines)))  # near ones count, others hardly
    if len(weights) > _NEAREST:
        weights *= weights >= -np.partition(-weights, _NEAREST - 1, axis=1)[:, [_NEAREST - 1]]
    total = weights.sum(1)  # (n,)
    means = (weights @ scores) / np.maximum(total, np.float32(1e-9))
    weight *= min(1, (len(scores) - 1) / _NEAREST)  # few candidates have few that are similar
    most = _MOST * scores.std()
    added: Floats = np.where(total > 0, np.clip(means - scores, -most, most), 0)
    return (weight * added).astype(np.float32)


def pick_best(scores: NDArray[np.floating]) -> Ints:
    """The places of those that are compared."""
    return np.argsort(-scores, kind="stable")[:_BEST]
