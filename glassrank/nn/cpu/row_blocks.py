# mypy: allow-untyped-calls
"""Some rows times thirty-two columns of weights, with all sums in registers, compiled.

For processors with 32 registers of sixteen float32: twelve rows have 24 sums, each number of a row
is read once for 32 outputs and each weight once for twelve rows, so that products wait for neither.
`row_products` says how weights lie. Here they are bfloat16 and rows float32; `row_integers` has the
same for whole numbers of 16 bits, and of 8.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types

from glassrank.nn.cpu.simd import (
    FLOATS,
    LANES,
    broadcast,
    element,
    even_and_odd,
    intrinsic,
    load,
    named,
    prefetch,
    prefetch_near,
    spread,
    vector,
)

STEP = 32
"""Inputs of a tile, and outputs of two."""
TILE = STEP * LANES
AHEAD = 16 * TILE
"""Weights are prefetched so far ahead."""
_NEAR = 4
"""And once more, to the nearest cache, so many pairs ahead."""
LINE = 32


class Numbers(NamedTuple):
    """What rows and weights are, as compiled functions that work on them."""

    taken: Callable[..., Any]
    """(rows, count, inputs, panel): rows as the next two take them."""
    add_pair: Callable[..., Any]
    """(rows, row, inputs, pair, weights, at, sums): two inputs of some rows times the weights at a
    place, those for 32 outputs; added to the sums."""
    finished: Callable[..., Any]
    """(rows, row, inputs, weights, first, bias, column, sums): the outputs, with their bias."""
    head: int = 0
    """Places before the weights of 32 outputs."""
    pair: int = STEP
    """Places from two inputs to the next two."""
    lines: tuple[int, ...] = (0, TILE)
    """Where the lines of the cache begin that hold their weights."""


def rows_by_columns(count: int, kind: Numbers) -> Callable[..., None]:
    """The function for so many rows: from `row` on, by the weights from `first` on, for the outputs
    from `column` on."""

    @intrinsic
    def begin(typing: Any, zero: Any) -> Any:
        """The sums of all rows: two for each."""
        return sums(zero), lambda context, builder, sig, args: context.make_tuple(
            builder, sums, list(args) * (2 * count)
        )

    sums = types.UniTuple(vector, 2 * count)
    add_pair, finished, head = kind.add_pair, kind.finished, kind.head
    places, lines = kind.pair, kind.lines

    @njit
    def multiply_rows(
        rows: Any, row: int, inputs: int, weights: Any, first: int, bias: Any, column: int,
        outputs: int, out: Any,
    ) -> None:  # fmt: skip
        total = begin(broadcast(np.float32(0)))
        for step in range(inputs // STEP):
            tile = first + head + 2 * step * TILE
            for pair in range(LANES):
                at = tile + pair * places
                # As many lines as are read: all of a tile's at once would stand in the way of what
                # is read meanwhile.
                for line in lines:
                    prefetch(weights, at + line + AHEAD)
                    prefetch_near(weights, at + line + _NEAR * places)
                total = add_pair(rows, row, inputs, step * LANES + pair, weights, at, total)
        total = finished(rows, row, inputs, weights, first, bias, column, total)
        _store_rows(out, row * outputs + column, outputs, total)

    function: Callable[..., None] = multiply_rows
    return function


@njit
def _as_they_are(rows: Any, count: int, inputs: int, panel: Any) -> Any:
    return rows


@njit(inline="always")
def _add_pair(rows: Any, row: int, inputs: int, pair: int, weights: Any, at: int, sums: Any) -> Any:
    return _add_two_inputs(rows, row * inputs + 2 * pair, inputs, weights, at, sums)


@njit(inline="always")
def _with_bias(
    rows: Any, row: int, inputs: int, weights: Any, first: int, bias: Any, column: int, sums: Any
) -> Any:
    return _add_bias(load(bias, column), load(bias, column + LANES), sums)


BFLOATS = Numbers(_as_they_are, _add_pair, _with_bias)


@intrinsic
def _add_two_inputs(
    typing: Any, rows: Any, place: Any, apart: Any, weights: Any, at: Any, sums: Any
) -> Any:
    """Two inputs of all rows, which lie `apart`, times their weights."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start, place, apart, source, at, before = args
        total = [builder.extract_value(before, number) for number in range(sums.count)]
        left = even_and_odd(builder, source, at)
        right = even_and_odd(builder, source, builder.add(at, at.type(TILE)))
        for number, pair in enumerate(zip(left, right, strict=True)):
            for row in range(sums.count // 2):
                here = builder.add(further(builder, place, apart, row), place.type(number))
                value = spread(builder, builder.load(builder.gep(start, [here])))
                for side, weight in enumerate(pair):
                    to = 2 * row + side
                    factors = [value, weight, total[to]]
                    total[to] = named(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, factors)
        return context.make_tuple(builder, sums, total)

    return sums(rows, types.intp, types.intp, weights, types.intp, sums), generate


@intrinsic
def _add_bias(typing: Any, left: Any, right: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        total = [
            builder.fadd(builder.extract_value(args[2], number), args[number % 2])
            for number in range(sums.count)
        ]
        return context.make_tuple(builder, sums, total)

    return sums(left, right, sums), generate


@intrinsic
def _store_rows(typing: Any, out: Any, at: Any, apart: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start, at, apart, total = args
        for number in range(sums.count):
            row = further(builder, at, apart, number // 2)
            place = builder.add(row, at.type(number % 2 * LANES))
            value = builder.extract_value(total, number)
            builder.store(value, element(builder, start, place, FLOATS)).align = 4
        return context.get_dummy_value()

    return types.void(out, types.intp, types.intp, sums), generate


def further(builder: Any, place: Any, apart: Any, rows: int) -> ir.Value:
    """The same place so many rows further on."""
    return builder.add(place, builder.mul(apart, apart.type(rows)))
