# mypy: allow-untyped-calls
"""Rows as whole numbers of 16 bits and weights of 16 or 8, for `row_blocks`, compiled.

Where a processor adds up the products of two inputs in one instruction (AVX-512's VNNI), whole
numbers take half as long as float32, and weights none to be brought to float32. A row is a scale
times whole numbers, and so are the weights of an output. The scales are chosen so that both have
a length of at most 46,000: no sum of their products can then pass 31 bits, by the inequality of
Cauchy and Schwarz. Of 384 inputs a number is then 2,300 on average, and rounding it off changes it
by a tenth of what bfloat16 does. Weights that a file has in 8 bits stay as they are: a query waits
for its weights, and these come in half the time.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numpy.typing import NDArray

from glassrank.nn.cpu import has
from glassrank.nn.cpu.row_blocks import STEP, Numbers, further
from glassrank.nn.cpu.simd import (
    FLOATS,
    INT,
    INTS,
    LANES,
    LINE,
    broadcast,
    element,
    intrinsic,
    load,
    named,
    spread,
    store_one,
    vector,
)
from glassrank.nn.cpu.simd_math import maximum, maximum_across, multiply_add, sum_across

_LENGTH, _LARGEST = np.float32(46_000), np.float32(32_767)
_NONE = np.float32(1e-30)
"""Rows and weights of zeros have a scale, too."""
_SAME = np.float32(1e-4)
"""A whole number is not further from one after it was scaled and scaled back."""
_SHORTS = ir.VectorType(ir.IntType(16), LANES)
_PAIRS = ir.VectorType(ir.IntType(16), 2 * LANES)


def usable() -> bool:
    """Whether the processor has what makes whole numbers faster."""
    return has("avx512vnni", "avx512bw")


def integers_of(weight: NDArray[np.float32]) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """(N, K) as whole numbers, and the scale of each output: (N,)."""
    lengths = np.sqrt(np.einsum("nk,nk->n", weight, weight))
    largest = np.abs(weight).max(1, initial=0)
    scale = np.maximum(np.maximum(lengths / _LENGTH, largest / _LARGEST), _NONE)  # (N,)
    numbers = weight * (1 / scale)[:, None]
    return np.rint(numbers, out=numbers).astype(np.int16), scale


def bytes_of(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]] | None:
    """The same in 8 bits, if that is what these weights (N, K) were made of: whole numbers up to
    127 times a scale."""
    scale = np.maximum(np.abs(weight).max(1, initial=0) / np.float32(127), _NONE)  # (N,)
    numbers = weight * (1 / scale)[:, None]
    nearest = np.rint(numbers)
    numbers -= nearest
    if np.abs(numbers, out=numbers).max(initial=0) > _SAME:
        return None
    return nearest.astype(np.int8), scale


def panel_size(rows: int, inputs: int) -> int:
    """In float32: what `_to_integers` fills."""
    apart: int = _row_apart.py_func(inputs)
    return rows * apart


@njit
def _row_apart(inputs: Any) -> Any:
    """From one row to the next, in pairs: the scale stands behind them."""
    return inputs // 2 + LANES


@njit
def _to_integers(rows: Any, count: int, inputs: int, panel: Any) -> Any:
    """Row by row: whole numbers, two of them in the place of a float32, and then the scale."""
    apart = _row_apart(inputs)
    for row in range(count):
        squares, largest = broadcast(np.float32(0)), broadcast(np.float32(0))
        for column in range(0, inputs, LANES):
            value = load(rows, row * inputs + column)
            squares = multiply_add(value, value, squares)
            largest = maximum(largest, maximum(value, broadcast(np.float32(0)) - value))
        length = np.float32(np.sqrt(sum_across(squares)))
        scale = max(length / _LENGTH, maximum_across(largest) / _LARGEST, _NONE)
        factor = broadcast(np.float32(1) / scale)
        for column in range(0, inputs, LANES):
            value = load(rows, row * inputs + column) * factor
            _store_integers(panel, row * apart + column // 2, value)
        store_one(panel, row * apart + inputs // 2, scale)
    return panel


@intrinsic
def _store_integers(typing: Any, target: Any, at: Any, value: Any) -> Any:
    """Sixteen, each the nearest, in the place of eight float32."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        nearest = named(builder, f"llvm.rint.v{LANES}f32", FLOATS, [args[2]])
        short = builder.trunc(builder.fptosi(nearest, INTS), _SHORTS)
        builder.store(short, element(builder, args[0], args[1], _SHORTS)).align = 4
        return context.get_dummy_value()

    return types.void(target, types.intp, vector), generate


def _numbers(bits: int) -> Numbers:
    """Of weights of so many bits. They lie pair by pair of inputs, and the scales of 32 outputs
    stand before them."""
    stored = ir.VectorType(ir.IntType(bits), 2 * LANES)
    scales_apart = STEP * 16 // bits

    @njit(inline="always")
    def add_pair(
        rows: Any, row: int, inputs: int, pair: int, weights: Any, at: int, sums: Any
    ) -> Any:
        apart = _row_apart(inputs)
        return add_products(rows, row * apart + pair, apart, weights, at, sums)

    @intrinsic
    def add_products(
        typing: Any, rows: Any, place: Any, apart: Any, weights: Any, at: Any, sums: Any
    ) -> Any:
        """Two inputs of all rows, which lie `apart`, times their weights; sums are 32-bit integers,
        of which nobody but `scaled` sees that they are no float32."""

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            start, place, apart, source, at, before = args
            sides = _two(builder, source, at, STEP, stored)
            if bits < 16:
                sides = [builder.sext(side, _PAIRS) for side in sides]
            total = []
            for number in range(sums.count):
                here = element(builder, start, further(builder, place, apart, number // 2), INT)
                both = builder.bitcast(spread(builder, builder.load(here)), _PAIRS)
                factors = [both, sides[number % 2]]
                products = named(builder, "llvm.x86.avx512.pmaddw.d.512", INTS, factors)
                sum_before = builder.bitcast(builder.extract_value(before, number), INTS)
                total.append(builder.bitcast(builder.add(sum_before, products), FLOATS))
            return context.make_tuple(builder, sums, total)

        return sums(rows, types.intp, types.intp, weights, types.intp, sums), generate

    @njit(inline="always")
    def finished(
        rows: Any, row: int, inputs: int, weights: Any, first: int, bias: Any, column: int,
        sums: Any,
    ) -> Any:  # fmt: skip
        apart = _row_apart(inputs)
        left, right = load(bias, column), load(bias, column + LANES)
        return scaled(rows, row * apart + inputs // 2, apart, weights, first, left, right, sums)

    @intrinsic
    def scaled(
        typing: Any, rows: Any, place: Any, apart: Any, weights: Any, first: Any, left: Any,
        right: Any, sums: Any,
    ) -> Any:  # fmt: skip
        """Times the scales of rows and of outputs; plus a bias."""

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            start, place, apart, source, first, *bias, before = args
            scales = _two(builder, source, first, scales_apart, FLOATS)
            total = []
            for number in range(sums.count):
                here = builder.gep(start, [further(builder, place, apart, number // 2)])
                scale = builder.fmul(spread(builder, builder.load(here)), scales[number % 2])
                whole = builder.bitcast(builder.extract_value(before, number), INTS)
                factors = [builder.sitofp(whole, FLOATS), scale, bias[number % 2]]
                total.append(named(builder, f"llvm.fmuladd.v{LANES}f32", FLOATS, factors))
            return context.make_tuple(builder, sums, total)

        return (
            sums(rows, types.intp, types.intp, weights, types.intp, vector, vector, sums),
            generate,
        )

    pair, line = 2 * STEP, LINE * 8 // bits
    lines = tuple(range(0, pair, line))
    return Numbers(_to_integers, add_pair, finished, 2 * scales_apart, pair, lines)


def _two(builder: Any, source: Any, at: Any, apart: int, kind: Any) -> list[Any]:
    """Of sixteen outputs, and of the sixteen after them."""
    places = (at, builder.add(at, at.type(apart)))
    loaded = [builder.load(element(builder, source, place, kind)) for place in places]
    for value in loaded:
        value.align = 1
    return loaded


INTEGERS, BYTES = _numbers(16), _numbers(8)
