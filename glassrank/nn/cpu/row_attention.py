"""Attention within one text of a pass (`few_rows_pass`), compiled: by matrix tiles where there are
any and the text is long enough for them, else by vectors (`row_steps.attend`).

A head that is as wide as a tile compares sixteen words with sixteen others in one instruction, as
`attention.py` has it; here rows are float32 before it, and rounded as they are laid out. Heads that
tell distances apart take the other way. Which way a text takes depends on its length alone, so that
its rows do not depend on the texts beside it.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from glassrank.nn.cpu import amx
from glassrank.nn.cpu.attention import CHANNELS, shares_of, store_pairs
from glassrank.nn.cpu.row_products import by_tiles
from glassrank.nn.cpu.row_steps import attend
from glassrank.nn.cpu.simd import LANES, broadcast, load, offset, store, store_one

_LONG = 2 * LANES
"""Words of a text, from which on tiles are faster."""
_TILE = LANES * CHANNELS // 2


class TileRoom(NamedTuple):
    """Of one who takes part, for texts of up to `most` words, a multiple of 32."""

    words: NDArray[np.uint16]  # keys, values and one row
    pairs: NDArray[np.uint32]  # of queries, and shares
    floats: NDArray[np.float32]  # scores and sums


def room_sizes(rows: int) -> tuple[int, int, int]:
    """Of the arrays of a `TileRoom`, for so many rows."""
    most = -(-rows // 32) * 32
    return (2 * most + LANES + 1) * CHANNELS, _TILE + most * LANES // 2, most * LANES + 2 * _TILE


def attend_text(*_: Any) -> Any:
    """As `row_steps.attend`, with room for tiles."""


@overload(attend_text, strict=False)
def _attend_text(
    source: Any, count: Any, heads: Any, channels: Any, width: Any, scale: Any, apart: Any,
    span: Any, turned: Any, most: Any, scores: Any, words: Any, pairs: Any, floats: Any,
    target: Any,
) -> Any:  # fmt: skip
    def tiles(
        source: Any, count: Any, heads: Any, channels: Any, width: Any, scale: Any, apart: Any,
        span: Any, turned: Any, most: Any, scores: Any, words: Any, pairs: Any, floats: Any,
    target: Any,
    ) -> None:  # fmt: skip
        if count < _LONG or width != CHANNELS or span:
            attend(
                source, count, heads, channels, width, scale, apart, span, turned, most, scores,
                target,
            )  # fmt: skip
        else:
            for head in range(heads):
                _attend_head(source, count, head, heads, scale, words, pairs, floats, target)

    def vectors(
        source: Any, count: Any, heads: Any, channels: Any, width: Any, scale: Any, apart: Any,
        span: Any, turned: Any, most: Any, scores: Any, words: Any, pairs: Any, floats: Any,
    target: Any,
    ) -> None:  # fmt: skip
        attend(
            source, count, heads, channels, width, scale, apart, span, turned, most, scores, target
        )

    return tiles if by_tiles(target) else vectors


@njit
def _lay_out(
    source: Any, count: int, key: int, value: int, stride: int, keys: Any, values: Any, row: Any
) -> None:
    """Keys one after another; values with all words of a channel side by side. Places up to the
    next whole tile hold zeros."""
    most = (count + 31) // 32 * 32
    zeros = broadcast(np.float32(0))
    for word in range(count):
        at = word * stride
        store(keys, word * CHANNELS, load(source, at + key))
        store(keys, word * CHANNELS + LANES, load(source, at + key + LANES))
        store(row, 0, load(source, at + value))
        store(row, LANES, load(source, at + value + LANES))
        for channel in range(CHANNELS):
            store_one(values, channel * most + word, row[channel])
    for word in range(count, count + LANES):
        store(keys, word * CHANNELS, zeros)
        store(keys, word * CHANNELS + LANES, zeros)
    for channel in range(CHANNELS):
        for word in range(count, most):
            store_one(values, channel * most + word, np.uint16(0))


@njit
def _attend_head(
    source: Any, count: int, head: int, heads: int, scale: Any, words: Any, pairs: Any,
    floats: Any, target: Any,
) -> None:  # fmt: skip
    stride, query = heads * 3 * CHANNELS, head * 3 * CHANNELS
    steps = (count + 31) // 32
    row = words
    keys = offset(words, CHANNELS)
    values = offset(keys, (count + LANES) * CHANNELS)
    asked, shares = pairs, offset(pairs, _TILE)
    sums, scores = floats, offset(floats, 2 * _TILE)
    _lay_out(source, count, query + CHANNELS, query + 2 * CHANNELS, stride, keys, values, row)
    ones = broadcast(np.float32(1))
    for begin in range(0, count, LANES):
        here = min(LANES, count - begin)
        for word in range(LANES):
            at = query + min(begin + word, count - 1) * stride
            store(row, 0, load(source, at))
            store(row, LANES, load(source, at + LANES))
            for pair in range(CHANNELS // 2):
                low, high = np.uint32(row[2 * pair]), np.uint32(row[2 * pair + 1])
                store_one(asked, pair * LANES + word, low | (high << np.uint32(16)))
        amx.load_tile(6, asked, 0, amx.ROW_BYTES)
        for other in range(0, count, LANES):
            amx.zero(0)
            amx.load_tile(4, keys, other * CHANNELS, amx.ROW_BYTES)
            amx.add_bf16_products(0, 4, 6)
            amx.store_tile(0, scores, other * LANES, amx.ROW_BYTES)
        total = ones / shares_of(scores, shares, count, scale)
        amx.zero(0)
        amx.zero(1)
        for step in range(steps):
            amx.load_tile(7, shares, step * _TILE, amx.ROW_BYTES)
            amx.load_tile(4, values, step * 32, 64 * steps)
            amx.add_bf16_products(0, 4, 7)
            amx.load_tile(5, values, (LANES * steps + step) * 32, 64 * steps)
            amx.add_bf16_products(1, 5, 7)
        amx.store_tile(0, sums, 0, amx.ROW_BYTES)
        amx.store_tile(1, sums, _TILE, amx.ROW_BYTES)
        for pair in range(CHANNELS // 2):
            low_sum = load(sums, 2 * pair * LANES) * total
            high_sum = load(sums, (2 * pair + 1) * LANES) * total
            store_pairs(asked, pair * LANES, low_sum, high_sum)
        for word in range(here):
            to = ((begin + word) * heads + head) * CHANNELS
            for pair in range(CHANNELS // 2):
                both = asked[pair * LANES + word]
                store_one(target, to + 2 * pair, np.uint16(both & np.uint32(0xFFFF)))
                store_one(target, to + 2 * pair + 1, np.uint16(both >> np.uint32(16)))
