"""Products of stored document tokens and query tokens, compiled: by tiles (see `amx`) for bfloat16
and int8, or by vectors (see `simd`) for any dtype. The dtype of the packed query decides which one.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from glassrank.backends.cpu import amx, rows_at_once
from glassrank.backends.cpu.packed_query import INT8_PARTS, INT8_PLACE, Kind, PackedQuery, kind_of
from glassrank.backends.cpu.simd import (
    LANES,
    broadcast,
    broadcast_at,
    load,
    load_one,
    pointer,
    prefetch,
    store,
    store_one,
)
from glassrank.backends.cpu.simd_math import multiply_add

CHUNK = 256
"""The most document tokens whose products are computed before the first is read: tiles are slow to
read right after they are written, and all should stay in the cache."""

WORDS_AT_ONCE = 8
"""The most document tokens that vectors take at a time (see `rows_at_once`)."""

_CONFIGS = amx.tile_configs().reshape(-1)
_BF16_TILE = 16 * 32
_INT8_TILE = 16 * 64


class Stored(NamedTuple):
    """Embeddings of document tokens, one in each row."""

    vectors: Any
    scales: Any  # of each row
    scaled: bool
    stride: int  # from row to row
    column: int  # where a word's values begin in its row
    line: int  # values in a line of the cache
    lines: int  # of each word


class Scratch(NamedTuple):
    """Memory for one thread to work in."""

    wide: Any  # WORDS_AT_ONCE words as float32
    products: Any  # (groups, CHUNK, 16) float32, or (3, groups, CHUNK, 16) int32 for int8
    sums: Any  # (groups, kernels, 16)
    ahead: Any  # the next row to fetch, and where to stop


@njit
def prefetch_row(stored: Any, ahead: Any) -> None:
    """Prefetches one of the next tokens, so that memory is never idle."""
    row = ahead[0]
    if row < ahead[1]:
        start = row * stored.stride + stored.column
        for number in range(stored.lines):
            prefetch(stored.vectors, start + number * stored.line)
        store_one(ahead, 0, row + 1)


def _kind(query: Any) -> Kind:
    assert query.instance_class is PackedQuery
    return kind_of(query.types[0])


def multiply(*_: Any) -> Any:
    """All products of `words` tokens from row `begin` on, at most CHUNK."""


@overload(multiply, strict=False)
def _multiply(query: Any, stored: Any, begin: Any, words: Any, scratch: Any) -> Any:
    kind = _kind(query)
    if kind == "simd":
        return _by_vectors(rows_at_once())
    return _multiply_bf16 if kind == "bf16" else _multiply_int8


def _multiply_bf16(query: Any, stored: Any, begin: Any, words: Any, scratch: Any) -> None:
    """Two tiles of document tokens at a time, with two groups of query tokens, or one where there
    is no second. A tile that would reach beyond the chunk begins earlier."""
    rows = min(words, LANES)
    steps = (query.size + 31) // 32
    group_size = steps * query.parts * _BF16_TILE
    start = begin * stored.stride + stored.column
    for word in range(0, words, 2 * LANES):
        first, second = min(word, words - rows), min(word + LANES, words - rows)
        for group in range(0, query.groups, 2):
            two = group + 1 < query.groups
            tile = group * group_size
            amx.zero(0)
            amx.zero(1)
            amx.zero(2)
            amx.zero(3)
            for step in range(steps):
                at = start + step * 32
                amx.load_tile(4, stored.vectors, at + first * stored.stride, 2 * stored.stride)
                amx.load_tile(5, stored.vectors, at + second * stored.stride, 2 * stored.stride)
                prefetch_row(stored, scratch.ahead)
                for _ in range(query.parts):
                    amx.load_tile(6, query.values, tile, amx.ROW_BYTES)
                    amx.add_bf16_products(0, 4, 6)
                    amx.add_bf16_products(1, 5, 6)
                    if two:
                        amx.load_tile(7, query.values, tile + group_size, amx.ROW_BYTES)
                        amx.add_bf16_products(2, 4, 7)
                        amx.add_bf16_products(3, 5, 7)
                    tile += _BF16_TILE
            to = group * CHUNK
            amx.store_tile(0, scratch.products, (to + first) * LANES, amx.ROW_BYTES)
            amx.store_tile(1, scratch.products, (to + second) * LANES, amx.ROW_BYTES)
            if two:
                to += CHUNK
                amx.store_tile(2, scratch.products, (to + first) * LANES, amx.ROW_BYTES)
                amx.store_tile(3, scratch.products, (to + second) * LANES, amx.ROW_BYTES)


def _multiply_int8(query: Any, stored: Any, begin: Any, words: Any, scratch: Any) -> None:
    """One tile of document tokens with one group of query tokens at a time. The sums of each part
    of the query are exact integers, and stay apart."""
    rows = min(words, LANES)
    steps = (query.size + 63) // 64
    part = query.groups * CHUNK * LANES
    for word in range(0, words, LANES):
        first = min(word, words - rows)
        start = (begin + first) * stored.stride + stored.column
        tile = 0
        for group in range(query.groups):
            amx.zero(0)
            amx.zero(1)
            amx.zero(2)
            for step in range(steps):
                amx.load_tile(4, stored.vectors, start + step * 64, stored.stride)
                prefetch_row(stored, scratch.ahead)
                amx.load_tile(6, query.values, tile, amx.ROW_BYTES)
                amx.add_int8_products(0, 4, 6)
                amx.load_tile(7, query.values, tile + _INT8_TILE, amx.ROW_BYTES)
                amx.add_int8_products(1, 4, 7)
                amx.load_tile(6, query.values, tile + 2 * _INT8_TILE, amx.ROW_BYTES)
                amx.add_int8_products(2, 4, 6)
                tile += INT8_PARTS * _INT8_TILE
            to = (group * CHUNK + first) * LANES
            amx.store_tile(0, scratch.products, to, amx.ROW_BYTES)
            amx.store_tile(1, scratch.products, to + part, amx.ROW_BYTES)
            amx.store_tile(2, scratch.products, to + 2 * part, amx.ROW_BYTES)


def _by_vectors(at_once: int) -> Any:
    """Compiled for eight document tokens at a time, or for four."""
    eight = at_once == 8

    def multiply_vectors(query: Any, stored: Any, begin: Any, words: Any, scratch: Any) -> None:
        size, wide = query.size, scratch.wide
        for word in range(0, words, at_once):
            for other in range(min(at_once, words - word)):
                _widen(stored, begin + word + other, size, wide, other * size)
                prefetch_row(stored, scratch.ahead)
            for group in range(query.groups):
                a = b = c = d = e = f = g = h = broadcast(np.float32(0))
                for i in range(size):
                    q = load(query.values, (group * size + i) * LANES)
                    a = multiply_add(broadcast_at(wide, i), q, a)
                    b = multiply_add(broadcast_at(wide, i + size), q, b)
                    c = multiply_add(broadcast_at(wide, i + 2 * size), q, c)
                    d = multiply_add(broadcast_at(wide, i + 3 * size), q, d)
                    if eight:
                        e = multiply_add(broadcast_at(wide, i + 4 * size), q, e)
                        f = multiply_add(broadcast_at(wide, i + 5 * size), q, f)
                        g = multiply_add(broadcast_at(wide, i + 6 * size), q, g)
                        h = multiply_add(broadcast_at(wide, i + 7 * size), q, h)
                to = (group * CHUNK + word) * LANES
                store(scratch.products, to, a)
                store(scratch.products, to + LANES, b)
                store(scratch.products, to + 2 * LANES, c)
                store(scratch.products, to + 3 * LANES, d)
                if eight:
                    store(scratch.products, to + 4 * LANES, e)
                    store(scratch.products, to + 5 * LANES, f)
                    store(scratch.products, to + 6 * LANES, g)
                    store(scratch.products, to + 7 * LANES, h)

    return multiply_vectors


@njit
def _widen(stored: Any, row: int, size: int, wide: Any, to: int) -> None:
    """One stored token as float32."""
    scale = load_one(stored.scales, row) if stored.scaled else np.float32(1)
    start = row * stored.stride + stored.column
    whole = size - size % LANES
    for i in range(0, whole, LANES):
        store(wide, to + i, load(stored.vectors, start + i) * broadcast(scale))
    for i in range(whole, size):
        store_one(wide, to + i, load_one(stored.vectors, start + i) * scale)


def similarity(*_: Any) -> Any:
    """Sixteen cosines, of one group of the query with token `word` of the chunk from `begin`."""


@overload(similarity, strict=False)
def _similarity(query: Any, stored: Any, begin: Any, word: Any, group: Any, scratch: Any) -> Any:
    def from_floats(
        query: Any, stored: Any, begin: Any, word: Any, group: Any, scratch: Any
    ) -> Any:
        return load(scratch.products, (group * CHUNK + word) * LANES)

    def from_parts(query: Any, stored: Any, begin: Any, word: Any, group: Any, scratch: Any) -> Any:
        part = query.groups * CHUNK * LANES
        at = (group * CHUNK + word) * LANES
        place = broadcast(np.float32(INT8_PLACE))
        upper = multiply_add(load(scratch.products, at), place, load(scratch.products, at + part))
        whole = multiply_add(upper, place, load(scratch.products, at + 2 * part))
        scale = load(query.scales, group * LANES) * broadcast_at(stored.scales, begin + word)
        return whole * scale

    return from_parts if _kind(query) == "int8" else from_floats


def configure(*_: Any) -> Any:
    """Before a chunk of `words` tokens: gives tiles that many rows, at most 16; how many."""


@overload(configure, strict=False)
def _configure(query: Any, words: Any, configured: Any) -> Any:
    def configure_tiles(query: Any, words: Any, configured: Any) -> Any:
        rows = min(words, LANES)
        if rows != configured:
            amx.configure(pointer(_CONFIGS), rows)
        return rows

    def nothing(query: Any, words: Any, configured: Any) -> Any:
        return configured

    return nothing if _kind(query) == "simd" else configure_tiles


def finish(*_: Any) -> Any:
    """After the last chunk."""


@overload(finish, strict=False)
def _finish(query: Any) -> Any:
    def release_tiles(query: Any) -> None:
        amx.release()

    def nothing(query: Any) -> None:
        pass

    return nothing if _kind(query) == "simd" else release_tiles
