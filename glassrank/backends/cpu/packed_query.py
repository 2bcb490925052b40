"""A query packed for compiled products, in groups of sixteen tokens: as float32 vectors (see
`simd`), or as tiles of bfloat16 or int8, where a token is a sum of several parts, about as precise
as float32.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import overload

from glassrank.backends.cpu.simd import INT, LANES, intrinsic

Kind = Literal["bf16", "int8", "simd"]

INT8_PARTS = 3
INT8_PLACE = 128
"""Parts of int8 are digits to this base."""


class PackedQuery(NamedTuple):
    """A packed query; in compiled code, with pointers instead of arrays."""

    values: Any
    """uint16 (bfloat16's bits) or int8 as tiles, or float32 as vectors."""
    scales: Any  # (groups * 16,) of int8
    weights: Any  # (groups * 16,) of the tokens in the score
    groups: int
    size: int  # values of each token
    parts: int


def kind_of(values: Any) -> Kind:
    """The kind of an array or pointer, by its dtype."""
    kinds: dict[Any, Kind] = {types.uint16: "bf16", types.int8: "int8", types.float32: "simd"}
    return kinds[values.dtype]


@intrinsic
def _bits(typing: Any, value: Any) -> Any:
    """Of one float32, as an integer."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.zext(builder.bitcast(args[0], INT), ir.IntType(64))

    return types.int64(types.float32), generate


@intrinsic
def _from_bits(typing: Any, value: Any) -> Any:
    """The float32 with these bits."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(builder.trunc(args[0], INT), ir.FloatType())

    return types.float32(types.int64), generate


@njit
def _tile_place(word: Any, i: Any, part: Any, parts: Any, steps: Any, beside: Any) -> Any:
    """Where a value stands: tiles (groups, steps, parts) of 16 rows, which hold four bytes, that is
    some values beside each other, of each of 16 words."""
    tile = (word // LANES * steps + i // (LANES * beside)) * parts + part
    row = i % (LANES * beside) // beside
    return ((tile * LANES + row) * LANES + word % LANES) * beside + i % beside


def pack(*_: Any) -> Any:
    """Writes a query (Q, E) into `values`, and the scales of its words; both come as zeros."""


@overload(pack, strict=False)
def _pack(query: Any, values: Any, scales: Any, parts: Any) -> Any:
    return {"bf16": _pack_bf16, "int8": _pack_int8, "simd": _pack_vectors}[kind_of(values)]


def _pack_vectors(query: Any, values: Any, scales: Any, parts: Any) -> None:
    words, size = query.shape
    for word in range(words):
        for i in range(size):
            values[(word // LANES * size + i) * LANES + word % LANES] = query[word, i]


def _pack_bf16(query: Any, values: Any, scales: Any, parts: Any) -> None:
    words, size = query.shape
    for word in range(words):
        for i in range(size):
            rest = query[word, i]
            for part in range(parts):
                # To the nearest number whose lower 16 bits are zeros, the even one of two.
                whole = _bits(rest)
                nearest = (whole + 0x7FFF + (whole >> 16 & 1)) >> 16
                values[_tile_place(word, i, part, parts, (size + 31) // 32, 2)] = nearest
                rest -= _from_bits(nearest << 16)


def _pack_int8(query: Any, values: Any, scales: Any, parts: Any) -> None:
    words, size = query.shape
    places = INT8_PLACE ** (parts - 1)
    for word in range(words):
        largest = np.float32(1e-6)  # products with tinier scales would be slow
        for i in range(size):
            largest = max(largest, abs(query[word, i]))
        scales[word] = largest / (127 * places)
        for i in range(size):
            rest = round(query[word, i] / scales[word])
            place = places
            for part in range(parts):
                digit = round(rest / place)
                values[_tile_place(word, i, part, parts, (size + 63) // 64, 4)] = digit
                rest -= digit * place
                place //= INT8_PLACE
