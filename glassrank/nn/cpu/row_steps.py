"""What a text's few rows go through between products, compiled: activations, attention, norms.

Rows are float32, or bfloat16 where tiles take them next. Arrays come as pointers; all widths are
multiples of 32.

Attention goes by matrix tiles where there are any and the text is long enough for them, else by
vectors. A head that is as wide as a tile compares sixteen words with sixteen others in one
instruction, as `attention.py` has it; here rows are float32 before it, and rounded as they are laid
out. Heads that tell distances apart take the other way. Which way a text takes depends on its
length alone, so that its rows do not depend on the texts beside it.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from glassrank.nn.cpu.attention import CHANNELS, TILE_PAIRS, attend_head
from glassrank.nn.cpu.row_products import by_tiles
from glassrank.nn.cpu.simd import (
    LANES,
    broadcast,
    broadcast_at,
    load,
    offset,
    store,
    store_one,
)
from glassrank.nn.cpu.simd_math import (
    exp2,
    maximum,
    maximum_across,
    minimum,
    multiply_add,
    square_root,
    sum_across,
)

RELU, GELU, GELU_TANH = 1, 2, 3
ASKERS = 4
"""Rows that attend at the same time."""

_ZERO, _ONE, _HALF = np.float32(0), np.float32(1), np.float32(0.5)
_LOWEST, _HIGHEST = np.float32(-126), np.float32(126)
_NEVER = np.float32(-1e30)
_LOG2_E = np.float32(np.log2(np.e))

# erf as Abramowitz and Stegun have it (7.1.26): off by 1.5e-7 at most.
_E0, _E1, _E2, _E3, _E4, _E5 = (
    np.float32(x)
    for x in (0.3275911, 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
)
_ROOT_HALF = np.float32(0.5**0.5)
_TANH_1, _TANH_3 = (np.float32(x) for x in ((8 / np.pi) ** 0.5, 0.044715))

_LONG = 2 * LANES
"""Words of a text, from which on tiles are faster."""


@njit
def _exp(x: Any) -> Any:
    return exp2(maximum(x * broadcast(_LOG2_E), broadcast(_LOWEST)))


@njit
def _gelu(x: Any) -> Any:
    """x times the share of a normal distribution that lies below it. Tails of it come from the
    side where they are small, so that they keep their digits."""
    size = maximum(x, broadcast(_ZERO) - x) * broadcast(_ROOT_HALF)
    t = broadcast(_ONE) / multiply_add(size, broadcast(_E0), broadcast(_ONE))
    p = multiply_add(broadcast(_E5), t, broadcast(_E4))
    p = multiply_add(p, t, broadcast(_E3))
    p = multiply_add(p, t, broadcast(_E2))
    p = multiply_add(p, t, broadcast(_E1))
    tail = p * t * _exp(broadcast(_ZERO) - size * size) * broadcast(_HALF)
    # x - x * tail above zero, x * tail below it: the larger part is x, or nothing.
    above = maximum(x, broadcast(_ZERO))
    return above - maximum(x, broadcast(_ZERO) - x) * tail


@njit
def _gelu_tanh(x: Any) -> Any:
    """x / (1 + e^-2u), of which the tanh of u is another way to write."""
    u = x * multiply_add(x * x, broadcast(_TANH_3), broadcast(_ONE)) * broadcast(_TANH_1)
    power = maximum(broadcast(_ZERO) - u * broadcast(_LOG2_E), broadcast(_LOWEST))
    return x / (broadcast(_ONE) + exp2(minimum(power, broadcast(_HIGHEST))))


@njit
def activate(source: Any, size: int, kind: int, target: Any) -> None:
    """`size` values through an activation, or none, as products take them."""
    for at in range(0, size, LANES):
        x = load(source, at)
        if kind == RELU:
            x = maximum(x, broadcast(_ZERO))
        elif kind == GELU:
            x = _gelu(x)
        elif kind == GELU_TANH:
            x = _gelu_tanh(x)
        store(target, at, x)


@njit
def attend(
    source: Any, count: int, heads: int, channels: int, width: int, scale: Any, apart: Any,
    span: int, turned: Any, most: int, scores: Any, target: Any,
) -> None:  # fmt: skip
    """Queries, keys and values of some heads, side by side in `source` (count, heads * 3 * width),
    to what they attend to: `target` (count, heads * width). `scale` is in powers of two, and so is
    what a head adds for a distance, `apart` (heads, span); a span of 0 is for heads that tell none.
    `turned` has room for keys, channels by `most` rows, and `scores` for those of ASKERS rows."""
    stride, last = heads * 3 * width, count - 1
    for head in range(heads):
        query = head * 3 * width
        key, value = query + width, query + 2 * width
        for row in range(count):
            for channel in range(channels):
                store_one(turned, channel * most + row, source[row * stride + key + channel])
        for row in range(0, count, ASKERS):
            # Four rows at a time, so that no sum waits for the one before it; a last row that has
            # no others beside it is there several times.
            r0, r1, r2, r3 = row, min(row + 1, last), min(row + 2, last), min(row + 3, last)
            q0, q1, q2, q3 = (
                query + r0 * stride, query + r1 * stride, query + r2 * stride, query + r3 * stride
            )  # fmt: skip
            for other in range(0, count, LANES):
                a = b = c = d = broadcast(_ZERO)
                for channel in range(channels):
                    keys = load(turned, channel * most + other)
                    a = multiply_add(broadcast_at(source, q0 + channel), keys, a)
                    b = multiply_add(broadcast_at(source, q1 + channel), keys, b)
                    c = multiply_add(broadcast_at(source, q2 + channel), keys, c)
                    d = multiply_add(broadcast_at(source, q3 + channel), keys, d)
                times = broadcast(scale)
                store(scores, other, a * times)
                store(scores, most + other, b * times)
                store(scores, 2 * most + other, c * times)
                store(scores, 3 * most + other, d * times)
            if span:
                same = head * span + (span - LANES) // 2  # the place of distance 0
                _add_row(scores, apart, same - r0, count)
                _add_row(offset(scores, most), apart, same - r1, count)
                _add_row(offset(scores, 2 * most), apart, same - r2, count)
                _add_row(offset(scores, 3 * most), apart, same - r3, count)
            p0, p1 = _shares(scores, count), _shares(offset(scores, most), count)
            p2 = _shares(offset(scores, 2 * most), count)
            p3 = _shares(offset(scores, 3 * most), count)
            for channel in range(0, width, LANES):
                a = b = c = d = broadcast(_ZERO)
                for other in range(count):
                    values = load(source, other * stride + value + channel)
                    a = multiply_add(broadcast_at(scores, other), values, a)
                    b = multiply_add(broadcast_at(scores, most + other), values, b)
                    c = multiply_add(broadcast_at(scores, 2 * most + other), values, c)
                    d = multiply_add(broadcast_at(scores, 3 * most + other), values, d)
                store(target, (r0 * heads + head) * width + channel, a * p0)
                store(target, (r1 * heads + head) * width + channel, b * p1)
                store(target, (r2 * heads + head) * width + channel, c * p2)
                store(target, (r3 * heads + head) * width + channel, d * p3)


@njit
def _add_row(scores: Any, values: Any, begin: int, count: int) -> None:
    for other in range(0, count, LANES):
        store(scores, other, load(scores, other) + load(values, begin + other))


@njit
def _shares(scores: Any, count: int) -> Any:
    """The softmax of one row's scores, in their place, not yet divided by its sum: gives what to
    multiply with. Places after the last one get a number so low that they have no share."""
    for other in range(count, (count + LANES - 1) // LANES * LANES):
        store_one(scores, other, _NEVER)
    best = load(scores, 0)
    for other in range(LANES, count, LANES):
        best = maximum(load(scores, other), best)
    best = broadcast(maximum_across(best))
    total = broadcast(_ZERO)
    for other in range(0, count, LANES):
        share = exp2(maximum(load(scores, other) - best, broadcast(_LOWEST)))
        total = total + share
        store(scores, other, share)
    return broadcast(_ONE) / broadcast(sum_across(total))


@njit
def normalise(
    x: Any, row: int, width: int, size: int, real: Any, gain: Any, shift: Any, inside: Any,
    outside: Any, rows: Any,
) -> None:  # fmt: skip
    """One row of `size` values, and zeros up to `width`: its values less their mean, by the
    deviation, of which epsilons keep the square (`inside`) or itself (`outside`) from zero. Once
    more into `rows`, as products take them. `real` is 1 for each value."""
    total = broadcast(_ZERO)
    for column in range(0, width, LANES):
        total = total + load(x, row * width + column)
    part = broadcast(_ONE) / broadcast(np.float32(size))
    mean = broadcast(sum_across(total)) * part
    squares = broadcast(_ZERO)
    for column in range(0, width, LANES):
        centred = (load(x, row * width + column) - mean) * load(real, column)
        squares = multiply_add(centred, centred, squares)
    variance = broadcast(sum_across(squares)) * part + broadcast(inside)
    factor = broadcast(_ONE) / (square_root(variance) + broadcast(outside))
    for column in range(0, width, LANES):
        at = row * width + column
        made = multiply_add((load(x, at) - mean) * factor, load(gain, column), load(shift, column))
        store(x, at, made)
        store(rows, at, made)


class TileRoom(NamedTuple):
    """Of one who takes part, for texts of up to `most` words, a multiple of 32."""

    words: NDArray[np.uint16]  # keys, values and one row
    pairs: NDArray[np.uint32]  # of queries, and shares
    floats: NDArray[np.float32]  # scores and sums


def room_sizes(rows: int) -> tuple[int, int, int]:
    """Of the arrays of a `TileRoom`, for so many rows."""
    most = -(-rows // 32) * 32
    pairs, floats = TILE_PAIRS + most * LANES // 2, most * LANES + 2 * TILE_PAIRS
    return (2 * most + LANES + 1) * CHANNELS, pairs, floats


def attend_text(*_: Any) -> Any:
    """As `attend`, with room for tiles."""


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
                attend_head(source, count, head, heads, scale, words, pairs, floats, target)

    def vectors(
        source: Any, count: Any, heads: Any, channels: Any, width: Any, scale: Any, apart: Any,
        span: Any, turned: Any, most: Any, scores: Any, words: Any, pairs: Any, floats: Any,
        target: Any,
    ) -> None:  # fmt: skip
        attend(
            source, count, heads, channels, width, scale, apart, span, turned, most, scores, target
        )

    return tiles if by_tiles(target) else vectors
