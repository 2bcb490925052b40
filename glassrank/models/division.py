"""How a model's documents are divided, and what score they have then: a part of how it is used."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError

_MOST = 10_000


@dataclass(frozen=True)
class Passages:
    """How documents that are longer than a model reads are divided, and what their score is."""

    overlap: int = 0
    """How much of a passage the next one begins with, at most: whole sentences of so many words, or
    pieces, as the model reads."""
    most: int = 64
    """Of one document: what stands behind them is not read. With 1, documents are cut."""
    best: int = 1
    """A document's score is the sum of those of so many passages, the best ones."""

    def __post_init__(self) -> None:
        if self.overlap < 0 or not 1 <= self.best <= self.most <= _MOST:
            raise InputError(
                f"passages: expected an overlap of 0 or more, and 1 to {_MOST:,} passages of which "
                f"1 or more are the best, found {self}"
            )


class BestPassages(NamedTuple):
    """Of each document."""

    values: NDArray[np.float32]  # (n,) its score
    numbers: NDArray[np.int64]  # (n,) its best passage, as a place among all that were scored


def best_passages(
    values: NDArray[np.float32],
    docs: NDArray[np.int64],
    shares: NDArray[np.float32],
    best: int = 1,
) -> BestPassages:
    """`docs` says whose passage each value is of: each document has one at least. Scores are sums
    over the `best` ones, the first stage's share counted once.

    >>> values, docs = np.array([1, 5, 2, 4], np.float32), np.array([0, 1, 0, 0])
    >>> best_passages(values, docs, np.zeros(2, np.float32)).values.tolist()
    [4.0, 5.0]
    >>> best_passages(values, docs, np.ones(2, np.float32), best=2).values.tolist()
    [5.0, 5.0]
    """
    order = np.lexsort((-values, docs))  # of equal ones the first
    owner = docs[order]
    starts = np.searchsorted(owner, np.arange(len(shares)))
    scores = values[order[starts]]
    for rank in range(1, best):
        there = starts + rank < len(order)
        there[there] = owner[starts[there] + rank] == np.flatnonzero(there)
        scores[there] += values[order[starts[there] + rank]] - shares[there]
    return BestPassages(scores, order[starts])
