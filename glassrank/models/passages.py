"""Passages of long documents: how documents are divided, and how scores of passages become one."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError

_MOST_PASSAGES = 10_000


@dataclass(frozen=True)
class Passages:
    """How documents that are longer than a model reads are divided, and what their score is."""

    overlap: int = 0
    """The most that two neighbours share: whole sentences of so many tokens."""
    most: int = 64
    """Passages of one document; the text behind them is not read. With 1, documents are cut."""
    best: int = 1
    """A document's score is the sum of its so many best passages' scores."""
    first: float = 0.0
    """The weight of the first passage's score, from 0 to 1, against that sum: one of many passages
    may be good by chance, and a document begins with what it is about."""

    def __post_init__(self) -> None:
        if not 0 <= self.first <= 1:
            raise InputError(f"passages.first: expected a number from 0 to 1, found {self.first}")
        if self.overlap < 0 or not 1 <= self.best <= self.most <= _MOST_PASSAGES:
            raise InputError(
                f"passages: expected an overlap of 0 or more, and 1 to {_MOST_PASSAGES:,} passages "
                f"of which 1 or more are the best, found {self}"
            )


class BestPassages(NamedTuple):
    """The score and the best passage of each document."""

    values: NDArray[np.float32]  # (n,) its score
    numbers: NDArray[np.int64]  # (n,) its best passage, as an index into all scored passages


def best_passages(
    values: NDArray[np.float32],
    docs: NDArray[np.int64],
    shares: NDArray[np.float32],
    best: int = 1,
    first: float = 0.0,
) -> BestPassages:
    """Aggregates the scores of passages. `docs` has the document of each passage: each document has
    at least one, the first passage before the others. A score is the sum over the `best` passages,
    with the first stage's share counted once, interpolated with the first passage's by `first`.

    >>> values, docs = np.array([1, 5, 2, 4], np.float32), np.array([0, 1, 0, 0])
    >>> best_passages(values, docs, np.zeros(2, np.float32)).values.tolist()
    [4.0, 5.0]
    >>> best_passages(values, docs, np.ones(2, np.float32), best=2).values.tolist()
    [5.0, 5.0]
    >>> best_passages(values, docs, np.zeros(2, np.float32), first=0.5).values.tolist()
    [2.5, 5.0]
    """
    order = np.lexsort((-values, docs))  # of equal ones the first
    owner = docs[order]
    starts = np.searchsorted(owner, np.arange(len(shares)))
    scores = values[order[starts]]
    for rank in range(1, best):
        there = starts + rank < len(order)
        there[there] = owner[starts[there] + rank] == np.flatnonzero(there)
        scores[there] += values[order[starts[there] + rank]] - shares[there]
    if first:
        begin = np.empty_like(scores)
        begin[docs[::-1]] = values[::-1]  # of several, the first one stays
        scores += np.float32(first) * (begin - scores)
    return BestPassages(scores, order[starts])
