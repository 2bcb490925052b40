"""Postings (a term's documents) and document vectors (a document's terms) in a segment: packed as
`packing.py` says, and some of them as numbers again."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.compiled import worth_loading
from glassrank.retrieve import plain
from glassrank.retrieve.packing import CountedRows, rows_hold, unpack_rows

SMALL = (np.uint8, np.uint16, np.uint32)
"""Types of numbers that are stored in the smallest that holds them; what needs more is int64."""

PLAIN_COST = 8
"""How much longer plain code takes for a packed number than for one that is as it is."""


class PackedRows(NamedTuple):
    """As they stand in files."""

    sizes: NDArray[Any]  # (rows,) numbers in each
    starts: NDArray[Any]  # (rows + 1,) words before each
    words: NDArray[np.uint32]  # of all rows, and spare ones
    block: int
    """Numbers in a block."""

    def unpack(self, rows: NDArray[Any] | slice) -> CountedRows:
        """Some of the rows, as numbers; in plain code where little is to be done."""
        starts, sizes = self.starts[:-1][rows].astype(np.int64), self.sizes[rows]
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if not worth_loading(PLAIN_COST * int(offsets[-1])):
            return plain.unpack_rows(starts, np.diff(offsets), self.words, self.block)
        values, counts = (np.empty(offsets[-1], np.uint32) for _ in range(2))
        unpack_rows(starts, offsets, self.words, self.block, values, counts)
        return CountedRows(offsets, values, counts)

    def hold(self, limit: int) -> bool:
        """Whether each row is as long as its words, and has nothing but numbers below a limit."""
        starts, sizes = self.starts.astype(np.int64), self.sizes.astype(np.int64)
        if worth_loading(PLAIN_COST * int(sizes.sum())):
            return bool(rows_hold(starts, sizes, self.words, self.block, limit))
        return plain.rows_hold(starts, sizes, self.words, self.block, limit)


def smallest_dtype(largest: int) -> DTypeLike:
    """That holds numbers up to this.

    >>> [np.dtype(smallest_dtype(n)).name for n in (255, 256, 1 << 40)]
    ['uint8', 'uint16', 'int64']
    """
    return next((dtype for dtype in SMALL if largest <= np.iinfo(dtype).max), np.int64)
