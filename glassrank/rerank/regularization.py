"""Score regularization: documents that are alike answer alike, so their scores are drawn together.

The best candidates are compared by the vectors of their store. Each score moves a part of the way
to the mean of the scores of those that are most like its document. What it gains or loses so, an
explanation shows as a part of its own.

F. Diaz, "Regularizing Ad Hoc Retrieval Scores", CIKM 2005.
"""

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import compiled_sums
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
    weight *= min(1, (len(scores) - 1) / _NEAREST)  # few candidates have few that are similar
    added: Floats = _draw(scores.astype(np.float32), vectors, np.float32(weight))
    return added


@compiled_sums  # NumPy's dozen calls take four times as long between the steps of a query
def _draw(scores: Floats, vectors: Floats, weight: np.float32) -> Floats:
    count, size = vectors.shape
    near = np.zeros((count, count), np.float32)
    for doc in range(count):
        for other in range(doc):
            cosine = np.float32(0)
            for i in range(size):
                cosine += vectors[doc, i] * vectors[other, i]
            # Near ones count, others hardly.
            near[doc, other] = near[other, doc] = max(cosine, np.float32(0)) ** 8
    most = np.float32(_MOST) * scores.std()
    added = np.zeros(count, np.float32)
    for doc in range(count):
        nearest = np.zeros(_NEAREST + 1, np.float32)  # rising, after a place for the next
        total = mean = np.float32(0)
        for other in range(count):
            place = 0
            while place < _NEAREST and near[doc, other] > nearest[place + 1]:
                nearest[place] = nearest[place + 1]
                place += 1
            nearest[place] = near[doc, other]
        for other in range(count):
            if near[doc, other] >= nearest[1]:
                total += near[doc, other]
                mean += near[doc, other] * scores[other]
        if total > 0:
            added[doc] = weight * min(max(mean / total - scores[doc], -most), most)
    return added


def pick_best(scores: NDArray[np.floating]) -> Ints:
    """The places of those that are compared."""
    return np.argsort(-scores, kind="stable")[:_BEST]
