"""Rows that need not be encoded again: a merge moves documents to a new segment unchanged."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.store.part import Part
from glassrank.store.rows import Rows


class Piece(NamedTuple):
    """Rows of some documents of a block."""

    docs: NDArray[np.int64]  # (n,) places in the block
    lengths: NDArray[np.int64]  # (n,)
    rows: Rows  # of all of them, one document after another
    cut: int = 0  # documents that are longer than what was read of them

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.rows.values())


class OldRows:
    """What parts hold that no segment needs any more.

    A document is known by its text, not by its id: one that was replaced has other rows.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [(part, np.argsort(part.contents, kind="stable")) for part in parts]

    def find(self, contents: NDArray[np.uint64]) -> Iterator[Piece]:
        """Those of a block whose hashes these are; each document at most once."""
        wanted = np.arange(len(contents))
        for part, order in self._parts:
            if not len(order):
                continue
            near = np.searchsorted(part.contents, contents[wanted], sorter=order)
            places = order[np.minimum(near, len(order) - 1)]
            found = part.contents[places] == contents[wanted]
            if found.any():
                starts = part.offsets[places[found]]
                lengths = part.offsets[places[found] + 1] - starts
                yield Piece(wanted[found], lengths, part.rows(starts, lengths))
                wanted = wanted[~found]
