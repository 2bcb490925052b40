"""From scores of passages to scores of documents."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class BestPassages(NamedTuple):
    """Of each document."""

    scores: NDArray[np.float32]  # (n,)
    passages: NDArray[np.int64]  # (n,) the best passage, as a row of all that were scored


def aggregate_passages(
    scores: NDArray[np.float32],
    docs: NDArray[np.int64],
    first_stage: NDArray[np.float32],
    best: int = 1,
    first: float = 0.0,
) -> BestPassages:
    """`docs` has the document of each passage; each document has at least one, the first one first.

    A document's score is the sum of its `best` passages, with what the `first_stage` adds to each
    counted once; the share `first` of it is the first passage's score instead.

    >>> scores, docs = np.array([1, 5, 2, 4], np.float32), np.array([0, 1, 0, 0])
    >>> aggregate_passages(scores, docs, np.zeros(2, np.float32)).scores.tolist()
    [4.0, 5.0]
    >>> aggregate_passages(scores, docs, np.ones(2, np.float32), best=2).scores.tolist()
    [5.0, 5.0]
    >>> aggregate_passages(scores, docs, np.zeros(2, np.float32), first=0.5).scores.tolist()
    [2.5, 5.0]
    """
    order = np.lexsort((-scores, docs))  # of equal ones the first
    owner = docs[order]
    starts = np.searchsorted(owner, np.arange(len(first_stage)))
    totals = scores[order[starts]]
    for rank in range(1, best):
        exists = starts + rank < len(order)
        exists[exists] = owner[starts[exists] + rank] == np.flatnonzero(exists)
        totals[exists] += scores[order[starts[exists] + rank]] - first_stage[exists]
    if first:
        first_passage = np.empty_like(totals)
        first_passage[docs[::-1]] = scores[::-1]  # of several, the first one stays
        totals += np.float32(first) * (first_passage - totals)
    return BestPassages(totals, order[starts])
