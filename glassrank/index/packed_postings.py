"""Delta-coded, bit-packed postings: rows of ascending ids, each with its term frequency (tf).

A segment stores its postings (the documents of a term) and its term vectors (the terms of a
document) in this form. A row starts at a 32-bit word and consists of blocks, all of the same size
except the last. A block has a header of twelve bits, the widths of a delta (six) and of a tf (six),
and then for each id its delta to the previous one and its tf, both minus one. So ids ascend and
tfs are positive whatever the bits are; `postings_are_valid` checks that ids stay below a limit and
rows within their words.

The functions are compiled; numpy versions serve small work, since loading compiled code takes
longer than one query on a small index.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.backends.compiled import compiled, inner, is_worth_compiling
from glassrank.storage.mapped_arrays import Ints, Uints, concat_ranges

WIDTH_BITS = 6
HEADER_BITS = 2 * WIDTH_BITS
MAX_DELTA_BITS = 32
MAX_TF_BITS = 31
SPARE_WORDS = 2  # after the last row: two words are read at once, even for a value of zero bits

SMALL_DTYPES = (np.uint8, np.uint16, np.uint32)
"""Arrays are stored in the smallest of these that holds their values; larger ones as int64."""

NUMPY_COST = 8  # how much longer numpy takes for a packed value than for an unpacked one

_U = np.uint64


class UnpackedPostings(NamedTuple):
    """Row i has `ids[offsets[i] : offsets[i + 1]]`, and a tf for each id."""

    offsets: Ints  # (rows + 1,)
    ids: Uints
    tfs: Uints


@inner
def _width(value: Any) -> Any:
    width = _U(0)
    while value >> width:
        width += _U(1)
    return width


@inner
def _widths(ids: Any, tfs: Any, previous: Any) -> Any:
    """Bits of the deltas and of the tfs of a block; `previous` is the id before it, plus one."""
    deltas, others = _U(0), _U(0)
    for i in range(len(ids)):
        deltas |= _U(ids[i]) - previous
        others |= _U(tfs[i]) - _U(1)
        previous = _U(ids[i]) + _U(1)
    return _width(deltas), _width(others)


@inner
def _put(words: Any, bit: Any, value: Any) -> None:
    """Writes a value of at most 32 bits over zeros."""
    shifted = value << (bit & _U(31))
    words[bit >> _U(5)] |= np.uint32(shifted & _U(0xFFFFFFFF))
    words[(bit >> _U(5)) + _U(1)] |= np.uint32(shifted >> _U(32))


@inner
def _get(words: Any, bit: Any) -> Any:
    """The 33 bits or more that start at a bit."""
    word = bit >> _U(5)
    return (_U(words[word]) | (_U(words[word + _U(1)]) << _U(32))) >> (bit & _U(31))


@inner
def _mask(width: Any) -> Any:
    return (_U(1) << width) - _U(1)


@compiled
def pack_postings(offsets: Any, ids: Any, tfs: Any, block: int) -> Any:
    """(number of words of each row, all words) of rows of ascending ids with positive tfs."""
    sizes = np.empty(len(offsets) - 1, np.int64)
    for row in range(len(sizes)):
        bits, previous = _U(0), _U(0)
        for start in range(offsets[row], offsets[row + 1], block):
            stop = min(start + block, offsets[row + 1])
            delta, tf = _widths(ids[start:stop], tfs[start:stop], previous)
            bits += _U(HEADER_BITS) + _U(stop - start) * (delta + tf)
            previous = _U(ids[stop - 1]) + _U(1)
        sizes[row] = np.int64((bits + _U(31)) >> _U(5))
    words = np.zeros(sizes.sum() + SPARE_WORDS, np.uint32)
    begin = 0
    for row in range(len(sizes)):
        bit, previous = _U(begin) << _U(5), _U(0)
        for start in range(offsets[row], offsets[row + 1], block):
            stop = min(start + block, offsets[row + 1])
            delta, tf = _widths(ids[start:stop], tfs[start:stop], previous)
            _put(words, bit, delta | tf << _U(WIDTH_BITS))
            bit += _U(HEADER_BITS)
            for i in range(start, stop):
                _put(words, bit, _U(ids[i]) - previous)
                _put(words, bit + delta, _U(tfs[i]) - _U(1))
                bit += delta + tf
                previous = _U(ids[i]) + _U(1)
        begin += sizes[row]
    return sizes, words[:-SPARE_WORDS]


@compiled
def unpack_postings(starts: Any, offsets: Any, words: Any, block: int, ids: Any, tfs: Any) -> None:
    """Writes the rows that start at these words to `ids` and `tfs`, at `offsets`."""
    for row in range(len(starts)):
        bit, value = _U(starts[row]) << _U(5), _U(0)
        for start in range(offsets[row], offsets[row + 1], block):
            header = _get(words, bit)
            delta = header & _mask(_U(WIDTH_BITS))
            tf = (header >> _U(WIDTH_BITS)) & _mask(_U(WIDTH_BITS))
            bit += _U(HEADER_BITS)
            for i in range(start, min(start + block, offsets[row + 1])):
                value += _get(words, bit) & _mask(delta)
                ids[i] = value
                tfs[i] = (_get(words, bit + delta) & _mask(tf)) + _U(1)
                value += _U(1)
                bit += delta + tf


@compiled
def postings_are_valid(starts: Any, sizes: Any, words: Any, block: int, limit: int) -> bool:
    """Whether rows fill exactly their words, and ids are below `limit`."""
    for row in range(len(sizes)):
        bit, stop, value = _U(starts[row]) << _U(5), _U(starts[row + 1]) << _U(5), _U(0)
        if sizes[row] > limit:
            return False
        for start in range(0, sizes[row], block):
            if bit + _U(HEADER_BITS) > stop:
                return False
            header = _get(words, bit)
            delta = header & _mask(_U(WIDTH_BITS))
            tf = (header >> _U(WIDTH_BITS)) & _mask(_U(WIDTH_BITS))
            if delta > _U(MAX_DELTA_BITS) or tf > _U(MAX_TF_BITS):
                return False
            bit += _U(HEADER_BITS)
            size = _U(min(block, sizes[row] - start))
            if bit + size * (delta + tf) > stop:
                return False
            for _ in range(size):
                value += (_get(words, bit) & _mask(delta)) + _U(1)
                bit += delta + tf
            if value > _U(limit):
                return False
        if (bit + _U(31)) >> _U(5) != _U(starts[row + 1]):
            return False
    return True


def unpack_postings_numpy(starts: Ints, sizes: Ints, words: Uints, block: int) -> UnpackedPostings:
    """As `unpack_postings`, in numpy."""
    rows = _unpack_numpy(starts, sizes, words, block)
    assert rows is not None  # without `ends`
    offsets, ids, tfs = rows
    return UnpackedPostings(offsets, ids.astype(np.uint32), tfs.astype(np.uint32))


def postings_are_valid_numpy(
    starts: Ints, sizes: Ints, words: Uints, block: int, limit: int
) -> bool:
    """As `postings_are_valid`, in numpy."""
    if not (sizes <= limit).all():
        return False
    rows = _unpack_numpy(starts[:-1], sizes, words, block, starts[1:])
    return rows is not None and bool(rows[1].max(initial=-1) < limit)


def _unpack_numpy(
    starts: Ints, sizes: Ints, words: Uints, block: int, ends: Ints | None = None
) -> tuple[Ints, Ints, Ints] | None:
    """Unpacks the first blocks of all rows, then the second ones, …; None if a row does not end
    exactly before its word in `ends`."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    deltas, tfs = np.zeros(offsets[-1], np.int64), np.zeros(offsets[-1], np.int64)
    bits, left, outputs = starts << 5, sizes.copy(), offsets[:-1].copy()
    rows = np.flatnonzero(left)
    while len(rows):
        if ends is not None and (bits[rows] + HEADER_BITS > ends[rows] << 5).any():
            return None
        header = _get_numpy(words, bits[rows], np.int64(HEADER_BITS))
        delta, tf = header & ((1 << WIDTH_BITS) - 1), header >> WIDTH_BITS
        counts = np.minimum(left[rows], block)
        first = bits[rows] + HEADER_BITS
        bits[rows] = first + counts * (delta + tf)
        too_wide = delta.max() > MAX_DELTA_BITS or tf.max() > MAX_TF_BITS
        if ends is not None and (too_wide or (bits[rows] > ends[rows] << 5).any()):
            return None
        into = concat_ranges(outputs[rows], counts)
        within = concat_ranges(np.zeros(len(rows), np.int64), counts)
        at = np.repeat(first, counts) + within * np.repeat(delta + tf, counts)
        deltas[into] = _get_numpy(words, at, np.repeat(delta, counts))
        at += np.repeat(delta, counts)
        tfs[into] = _get_numpy(words, at, np.repeat(tf, counts))
        left[rows] -= counts
        outputs[rows] += counts
        rows = rows[left[rows] > 0]
    if ends is not None and ((bits + 31) >> 5 != ends).any():
        return None
    sums = np.cumsum(deltas + 1)
    before = np.repeat(np.concatenate([[0], sums])[offsets[:-1]], sizes)
    return offsets, sums - before - 1, tfs + 1


def _get_numpy(words: Uints, bits: Ints, widths: Any) -> Ints:
    at = bits >> 5
    both = words[at].astype(np.uint64) | words[at + 1].astype(np.uint64) << np.uint64(32)
    masks = (np.uint64(1) << widths.astype(np.uint64)) - np.uint64(1)
    values: Ints = (both >> (bits & 31).astype(np.uint64) & masks).astype(np.int64)
    return values


class PackedPostings(NamedTuple):
    """Rows as files hold them."""

    sizes: NDArray[Any]  # (rows,) ids in each
    starts: NDArray[Any]  # (rows + 1,) words before each
    words: Uints  # of all rows, and spare ones
    block: int  # ids in a block

    def unpack(self, rows: NDArray[Any] | slice) -> UnpackedPostings:
        """Unpacks some of the rows."""
        starts, sizes = self.starts[:-1][rows].astype(np.int64), self.sizes[rows]
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if not is_worth_compiling(NUMPY_COST * int(offsets[-1])):
            return unpack_postings_numpy(starts, np.diff(offsets), self.words, self.block)
        ids, tfs = (np.empty(offsets[-1], np.uint32) for _ in range(2))
        unpack_postings(starts, offsets, self.words, self.block, ids, tfs)
        return UnpackedPostings(offsets, ids, tfs)

    def is_valid(self, limit: int) -> bool:
        """Whether rows fill exactly their words, and ids are below `limit`."""
        starts, sizes = self.starts.astype(np.int64), self.sizes.astype(np.int64)
        if is_worth_compiling(NUMPY_COST * int(sizes.sum())):
            return bool(postings_are_valid(starts, sizes, self.words, self.block, limit))
        return postings_are_valid_numpy(starts, sizes, self.words, self.block, limit)


def smallest_dtype(largest: int) -> DTypeLike:
    """
    >>> [np.dtype(smallest_dtype(n)).name for n in (255, 256, 1 << 40)]
    ['uint8', 'uint16', 'int64']
    """
    return next((dtype for dtype in SMALL_DTYPES if largest <= np.iinfo(dtype).max), np.int64)
