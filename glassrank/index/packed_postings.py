"""Rows of ascending numbers, each with how often it occurs, in as few bits as a block of them
needs: how they are packed, unpacked, and looked at when they are a stranger's. So a segment has its
postings (a term's documents) and document vectors (a document's terms).

A row begins with a word of 32 bits, and is blocks one after another, all of the same size but the
last. A block is twelve bits, which say how many bits a distance (six) and a count (six) take, and
then each number's distance from the one before it and its count, both less one. So whatever the
bits are, numbers ascend and occur at least once; that they stay below a limit, and rows within
their words, `postings_are_valid` makes sure of.

Compiled code does it, and numpy where little is to be done: to load compiled code takes longer than
one query on a small index does.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.backends.compiled import compiled, inner, is_worth_compiling
from glassrank.storage.mapped_arrays import concat_ranges

WIDTH_BITS = 6
HEADER_BITS = 2 * WIDTH_BITS
DISTANCE_BITS = 32
COUNT_BITS = 31
"""The most that either may take."""
SPARE_WORDS = 2
"""Behind all rows: two words are read at once, even where a number of no bits begins."""

SMALL_DTYPES = (np.uint8, np.uint16, np.uint32)
"""Types of numbers that are stored in the smallest that holds them; what needs more is int64."""

NUMPY_COST = 8
"""How much longer plain code takes for a packed number than for one that is as it is."""

_U = np.uint64


class UnpackedPostings(NamedTuple):
    """Row i has `values[offsets[i] : offsets[i + 1]]`, and each value its count."""

    offsets: NDArray[np.int64]  # (rows + 1,)
    values: NDArray[np.uint32]
    counts: NDArray[np.uint32]


@inner
def _width(value: Any) -> Any:
    width = _U(0)
    while value >> width:
        width += _U(1)
    return width


@inner
def _widths(values: Any, counts: Any, previous: Any) -> Any:
    """Bits that the distances and the counts of a block take; `previous` is the value before, plus
    one."""
    distances, others = _U(0), _U(0)
    for i in range(len(values)):
        distances |= _U(values[i]) - previous
        others |= _U(counts[i]) - _U(1)
        previous = _U(values[i]) + _U(1)
    return _width(distances), _width(others)


@inner
def _put(words: Any, bit: Any, value: Any) -> None:
    """Writes a value of at most 32 bits where there are zeros."""
    shifted = value << (bit & _U(31))
    words[bit >> _U(5)] |= np.uint32(shifted & _U(0xFFFFFFFF))
    words[(bit >> _U(5)) + _U(1)] |= np.uint32(shifted >> _U(32))


@inner
def _get(words: Any, bit: Any) -> Any:
    """What begins at a bit: 33 bits of it, at least."""
    word = bit >> _U(5)
    return (_U(words[word]) | (_U(words[word + _U(1)]) << _U(32))) >> (bit & _U(31))


@inner
def _mask(width: Any) -> Any:
    return (_U(1) << width) - _U(1)


@compiled
def pack_postings(offsets: Any, values: Any, counts: Any, block: int) -> Any:
    """(words of each row, all the words): rows of ascending values, with counts above zero."""
    sizes = np.empty(len(offsets) - 1, np.int64)
    for row in range(len(sizes)):
        bits, previous = _U(0), _U(0)
        for start in range(offsets[row], offsets[row + 1], block):
            stop = min(start + block, offsets[row + 1])
            distance, count = _widths(values[start:stop], counts[start:stop], previous)
            bits += _U(HEADER_BITS) + _U(stop - start) * (distance + count)
            previous = _U(values[stop - 1]) + _U(1)
        sizes[row] = np.int64((bits + _U(31)) >> _U(5))
    words = np.zeros(sizes.sum() + SPARE_WORDS, np.uint32)
    begin = 0
    for row in range(len(sizes)):
        bit, previous = _U(begin) << _U(5), _U(0)
        for start in range(offsets[row], offsets[row + 1], block):
            stop = min(start + block, offsets[row + 1])
            distance, count = _widths(values[start:stop], counts[start:stop], previous)
            _put(words, bit, distance | count << _U(WIDTH_BITS))
            bit += _U(HEADER_BITS)
            for i in range(start, stop):
                _put(words, bit, _U(values[i]) - previous)
                _put(words, bit + distance, _U(counts[i]) - _U(1))
                bit += distance + count
                previous = _U(values[i]) + _U(1)
        begin += sizes[row]
    return sizes, words[:-SPARE_WORDS]


@compiled
def unpack_postings(
    starts: Any, offsets: Any, words: Any, block: int, values: Any, counts: Any
) -> None:
    """Writes the numbers of rows that begin at these words to `offsets` of values and counts."""
    for row in range(len(starts)):
        bit, value = _U(starts[row]) << _U(5), _U(0)
        for start in range(offsets[row], offsets[row + 1], block):
            header = _get(words, bit)
            distance = header & _mask(_U(WIDTH_BITS))
            count = (header >> _U(WIDTH_BITS)) & _mask(_U(WIDTH_BITS))
            bit += _U(HEADER_BITS)
            for i in range(start, min(start + block, offsets[row + 1])):
                value += _get(words, bit) & _mask(distance)
                values[i] = value
                counts[i] = (_get(words, bit + distance) & _mask(count)) + _U(1)
                value += _U(1)
                bit += distance + count


@compiled
def postings_are_valid(starts: Any, sizes: Any, words: Any, block: int, limit: int) -> bool:
    """Whether rows are as long as their words, and numbers below a limit. `starts` ascend, and the
    last is that of the spare words behind all rows."""
    for row in range(len(sizes)):
        bit, stop, value = _U(starts[row]) << _U(5), _U(starts[row + 1]) << _U(5), _U(0)
        if sizes[row] > limit:
            return False
        for start in range(0, sizes[row], block):
            if bit + _U(HEADER_BITS) > stop:
                return False
            header = _get(words, bit)
            distance = header & _mask(_U(WIDTH_BITS))
            count = (header >> _U(WIDTH_BITS)) & _mask(_U(WIDTH_BITS))
            if distance > _U(DISTANCE_BITS) or count > _U(COUNT_BITS):
                return False
            bit += _U(HEADER_BITS)
            numbers = _U(min(block, sizes[row] - start))
            if bit + numbers * (distance + count) > stop:
                return False
            for _ in range(numbers):
                value += (_get(words, bit) & _mask(distance)) + _U(1)
                bit += distance + count
            if value > _U(limit):
                return False
        if (bit + _U(31)) >> _U(5) != _U(starts[row + 1]):
            return False
    return True


def unpack_postings_numpy(
    starts: NDArray[np.int64], sizes: NDArray[np.int64], words: NDArray[np.uint32], block: int
) -> UnpackedPostings:
    """As `unpack_postings`, in numpy."""
    rows = _plain_rows(starts, sizes, words, block)
    assert rows is not None  # where no ends are given
    offsets, values, counts = rows
    return UnpackedPostings(offsets, values.astype(np.uint32), counts.astype(np.uint32))


def postings_are_valid_numpy(
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    words: NDArray[np.uint32],
    block: int,
    limit: int,
) -> bool:
    """As `postings_are_valid`, in numpy."""
    if not (sizes <= limit).all():
        return False
    rows = _plain_rows(starts[:-1], sizes, words, block, starts[1:])
    return rows is not None and bool(rows[1].max(initial=-1) < limit)


def _plain_rows(
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    words: NDArray[np.uint32],
    block: int,
    ends: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Rows as numbers, all first blocks at once, then all second ones; None where they do not end
    with the words before `ends`."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    distances, counts = np.zeros(offsets[-1], np.int64), np.zeros(offsets[-1], np.int64)
    bits, left, places = starts << 5, sizes.copy(), offsets[:-1].copy()
    rows = np.flatnonzero(left)
    while len(rows):
        if ends is not None and (bits[rows] + HEADER_BITS > ends[rows] << 5).any():
            return None
        header = _bits(words, bits[rows], np.int64(HEADER_BITS))
        distance, count = header & ((1 << WIDTH_BITS) - 1), header >> WIDTH_BITS
        numbers = np.minimum(left[rows], block)
        first = bits[rows] + HEADER_BITS
        bits[rows] = first + numbers * (distance + count)
        too_wide = distance.max() > DISTANCE_BITS or count.max() > COUNT_BITS
        if ends is not None and (too_wide or (bits[rows] > ends[rows] << 5).any()):
            return None
        into = concat_ranges(places[rows], numbers)
        within = concat_ranges(np.zeros(len(rows), np.int64), numbers)
        at = np.repeat(first, numbers) + within * np.repeat(distance + count, numbers)
        distances[into] = _bits(words, at, np.repeat(distance, numbers))
        at += np.repeat(distance, numbers)
        counts[into] = _bits(words, at, np.repeat(count, numbers))
        left[rows] -= numbers
        places[rows] += numbers
        rows = rows[left[rows] > 0]
    if ends is not None and ((bits + 31) >> 5 != ends).any():
        return None
    sums = np.cumsum(distances + 1)
    before = np.repeat(np.concatenate([[0], sums])[offsets[:-1]], sizes)
    return offsets, sums - before - 1, counts + 1


def _bits(words: NDArray[np.uint32], bits: NDArray[np.int64], widths: Any) -> NDArray[np.int64]:
    """So many bits from there."""
    at = bits >> 5
    both = words[at].astype(np.uint64) | words[at + 1].astype(np.uint64) << np.uint64(32)
    masks = (np.uint64(1) << widths.astype(np.uint64)) - np.uint64(1)
    values: NDArray[np.int64] = (both >> (bits & 31).astype(np.uint64) & masks).astype(np.int64)
    return values


class PackedPostings(NamedTuple):
    """As they stand in files."""

    sizes: NDArray[Any]  # (rows,) numbers in each
    starts: NDArray[Any]  # (rows + 1,) words before each
    words: NDArray[np.uint32]  # of all rows, and spare ones
    block: int
    """Numbers in a block."""

    def unpack(self, rows: NDArray[Any] | slice) -> UnpackedPostings:
        """Some of the rows, as numbers; in plain code where little is to be done."""
        starts, sizes = self.starts[:-1][rows].astype(np.int64), self.sizes[rows]
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if not is_worth_compiling(NUMPY_COST * int(offsets[-1])):
            return unpack_postings_numpy(starts, np.diff(offsets), self.words, self.block)
        values, counts = (np.empty(offsets[-1], np.uint32) for _ in range(2))
        unpack_postings(starts, offsets, self.words, self.block, values, counts)
        return UnpackedPostings(offsets, values, counts)

    def is_valid(self, limit: int) -> bool:
        """Whether each row is as long as its words, and has nothing but numbers below a limit."""
        starts, sizes = self.starts.astype(np.int64), self.sizes.astype(np.int64)
        if is_worth_compiling(NUMPY_COST * int(sizes.sum())):
            return bool(postings_are_valid(starts, sizes, self.words, self.block, limit))
        return postings_are_valid_numpy(starts, sizes, self.words, self.block, limit)


def smallest_dtype(largest: int) -> DTypeLike:
    """That holds numbers up to this.

    >>> [np.dtype(smallest_dtype(n)).name for n in (255, 256, 1 << 40)]
    ['uint8', 'uint16', 'int64']
    """
    return next((dtype for dtype in SMALL_DTYPES if largest <= np.iinfo(dtype).max), np.int64)
