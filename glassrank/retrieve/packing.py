"""Rows of ascending numbers, each with how often it occurs, in as few bits as a block of them
needs: how they are packed, unpacked, and looked at when they are a stranger's.

A row begins with a word of 32 bits, and is blocks one after another, all of the same size but the
last. A block is twelve bits, which say how many bits a distance (six) and a count (six) take, and
then each number's distance from the one before it and its count, both less one. So whatever the
bits are, numbers ascend and occur at least once; that they stay below a limit, and rows within
their words, `rows_hold` makes sure of.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.compiled import compiled, inner

WIDTH_BITS = 6
HEADER_BITS = 2 * WIDTH_BITS
DISTANCE_BITS = 32
COUNT_BITS = 31
"""The most that either may take."""
SPARE_WORDS = 2
"""Behind all rows: two words are read at once, even where a number of no bits begins."""

_U = np.uint64


class CountedRows(NamedTuple):
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
def pack_rows(offsets: Any, values: Any, counts: Any, block: int) -> Any:
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
def unpack_rows(
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
def rows_hold(starts: Any, sizes: Any, words: Any, block: int, limit: int) -> bool:
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
