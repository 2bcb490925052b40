# mypy: allow-untyped-calls
"""Some rows times thirty-two columns of weights, with all sums in registers, compiled.

For processors with 32 registers of sixteen float32: twelve rows have 24 sums, each number of a row
is read once for 32 outputs and each weight once for twelve rows, so that products wait for neither.
`row_products` says how weights lie.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types

from glassrank.nn.cpu.simd import (
    FLOATS,
    LANES,
    element,
    even_and_odd,
    intrinsic,
    load,
    named,
    prefetch,
    spread,
    vector,
)

STEP = 32
"""Inputs of a tile, and outputs of two."""
TILE = STEP * LANES
AHEAD = 16 * TILE
"""Weights are prefetched so far ahead."""
LINE = 32


def rows_by_columns(count: int) -> Callable[..., None]:
    """The function for so many rows: from `row` on, by the weights from `first` on, for the outputs
    from `column` on."""

    @intrinsic
    def begin(typing: Any, left: Any, right: Any) -> Any:
        """The sums of all rows: two for each."""
        return sums(left, right), lambda context, builder, sig, args: context.make_tuple(
            builder, sums, list(args) * count
        )

    sums = types.UniTuple(vector, 2 * count)

    @njit
    def multiply_rows(
        rows: Any, row: int, inputs: int, weights: Any, first: int, bias: Any, column: int,
        outputs: int, out: Any,
    ) -> None:  # fmt: skip
        total = begin(load(bias, column), load(bias, column + LANES))
        for step in range(inputs // STEP):
            tile = first + 2 * step * TILE
            if row == 0:
                for line in range(0, 2 * TILE, LINE):
                    prefetch(weights, tile + AHEAD + line)
            for pair in range(LANES):
                place = row * inputs + step * STEP + 2 * pair
                total = _add_two_inputs(rows, place, inputs, weights, tile + pair * STEP, total)
        _store_rows(out, row * outputs + column, outputs, total)

    function: Callable[..., None] = multiply_rows
    return function


@intrinsic
def _add_two_inputs(
    typing: Any, rows: Any, place: Any, apart: Any, weights: Any, at: Any, sums: Any
) -> Any:
    """Two inputs of all rows, which lie `apart`, times their weights: those for sixteen outputs
    and, a tile further, for sixteen more."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start, place, apart, source, at, before = args
        total = [builder.extract_value(before, number) for number in range(sums.count)]
        left = even_and_odd(builder, source, at)
        right = even_and_odd(builder, source, builder.add(at, at.type(TILE)))
        for number, pair in enumerate(zip(left, right, strict=True)):
            for row in range(sums.count // 2):
                here = builder.add(_further(builder, place, apart, row), place.type(number))
                value = spread(builder, builder.load(builder.gep(start, [here])))
                for side, weight in enumerate(pair):
                    to = 2 * row + side
                    factors = [value, weight, total[to]]
                    total[to] = named(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, factors)
        return context.make_tuple(builder, sums, total)

    return sums(rows, types.intp, types.intp, weights, types.intp, sums), generate


@intrinsic
def _store_rows(typing: Any, out: Any, at: Any, apart: Any, sums: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start, at, apart, total = args
        for number in range(sums.count):
            row = _further(builder, at, apart, number // 2)
            place = builder.add(row, at.type(number % 2 * LANES))
            value = builder.extract_value(total, number)
            builder.store(value, element(builder, start, place, FLOATS)).align = 4
        return context.get_dummy_value()

    return types.void(out, types.intp, types.intp, sums), generate


def _further(builder: Any, place: Any, apart: Any, rows: int) -> ir.Value:
    return builder.add(place, builder.mul(apart, apart.type(rows)))
