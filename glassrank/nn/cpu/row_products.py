"""Products of a query's few rows with weights, compiled.

Weights are bfloat16 in tiles (see `amx`) of 32 inputs by 16 outputs, two inputs side by side, and
in the order in which they are read. There are two ways to multiply: tiles, which take rows of
bfloat16, and vectors (see `simd`), which take rows of float32 and run on any processor. The type of
the rows decides which way is compiled. Arrays come as pointers; all widths are multiples of 32.
"""

from typing import Any

from numba import njit, types
from numba.extending import overload

from glassrank.nn.cpu import amx, rows_at_once
from glassrank.nn.cpu.simd import LANES, broadcast_at, load, load_pairs, pointer, prefetch, store
from glassrank.nn.cpu.simd_math import four_by_four, multiply_add

STEP = 32
"""Inputs of a tile, and outputs of two."""
TILE = STEP * LANES

_CONFIGS = amx.tile_configs().reshape(-1)
_AHEAD = 16 * TILE
"""Weights are prefetched so far ahead."""
_LINE = 32
_FEW, _FEW_BY_FOUR = 16, 8
"""Of more rows than these, multiplied by eight or by four at a time, weights are brought to float32
once for all: a short query waits for its weights to be read."""


def by_tiles(rows: Any) -> bool:
    """Whether rows of this type are multiplied by tiles."""
    return bool(rows.dtype == types.uint16)


def multiply(*_: Any) -> Any:
    """`rows` (count, inputs) with the weights from `at` on, plus a bias: to `out` (count, outputs),
    which holds float32, as wide as outputs are many. Gives where the weights end. `panel` has room
    for the weights of sixteen outputs as float32."""


@overload(multiply, strict=False)
def _multiply(
    rows: Any, count: Any, inputs: Any, weights: Any, at: Any, bias: Any, outputs: Any, panel: Any,
    out: Any,
) -> Any:  # fmt: skip
    return _multiply_tiles if by_tiles(rows) else _by_vectors(rows_at_once())


def _multiply_tiles(
    rows: Any, count: Any, inputs: Any, weights: Any, at: Any, bias: Any, outputs: Any, panel: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Two tiles of rows and two of weights at a time; sums begin with the bias, whose row a tile of
    stride 0 repeats."""
    steps = inputs // STEP
    for column in range(0, outputs, STEP):
        for row in range(0, count, 2 * LANES):
            two = row + LANES < count
            amx.load_tile(0, bias, column, 0)
            amx.load_tile(1, bias, column + LANES, 0)
            if two:
                amx.load_tile(2, bias, column, 0)
                amx.load_tile(3, bias, column + LANES, 0)
            for step in range(steps):
                tile = at + 2 * step * TILE
                if row == 0:
                    for line in range(0, 2 * TILE, _LINE):
                        prefetch(weights, tile + _AHEAD + line)
                place = row * inputs + step * STEP
                amx.load_tile(4, rows, place, 2 * inputs)
                amx.load_tile(6, weights, tile, amx.ROW_BYTES)
                amx.add_bf16_products(0, 4, 6)
                amx.load_tile(7, weights, tile + TILE, amx.ROW_BYTES)
                amx.add_bf16_products(1, 4, 7)
                if two:
                    amx.load_tile(5, rows, place + LANES * inputs, 2 * inputs)
                    amx.add_bf16_products(2, 5, 6)
                    amx.add_bf16_products(3, 5, 7)
            to = row * outputs + column
            amx.store_tile(0, out, to, 4 * outputs)
            amx.store_tile(1, out, to + LANES, 4 * outputs)
            if two:
                amx.store_tile(2, out, to + LANES * outputs, 4 * outputs)
                amx.store_tile(3, out, to + LANES * outputs + LANES, 4 * outputs)
        at += 2 * steps * TILE
    return at


def _by_vectors(at_once: int) -> Any:
    """Compiled for eight rows at a time, or for four."""
    few, few_rows = (_FEW, _eight_rows) if at_once == 8 else (_FEW_BY_FOUR, _four_rows)

    def multiply_vectors(
        rows: Any, count: Any, inputs: Any, weights: Any, at: Any, bias: Any, outputs: Any,
        panel: Any, out: Any,
    ) -> Any:  # fmt: skip
        steps = inputs // STEP
        for column in range(0, outputs, LANES):
            first = at + column // STEP * 2 * steps * TILE + column % STEP // LANES * TILE
            if count > few:
                _to_floats(weights, first, steps, panel)
            for row in range(0, count, at_once):
                few_rows(
                    rows, row, inputs, weights, first, bias, column, outputs, panel, count > few,
                    out,
                )  # fmt: skip
        return at + outputs // STEP * 2 * steps * TILE

    return multiply_vectors


@njit
def _eight_rows(
    rows: Any, row: int, inputs: int, weights: Any, first: int, bias: Any, column: int,
    outputs: int, panel: Any, in_panel: bool, out: Any,
) -> None:  # fmt: skip
    """Sixteen outputs of each, by the weights from `first` on, or by those that are in the panel as
    float32."""
    a = b = c = d = e = f = g = h = load(bias, column)
    for place in range(row * inputs, (row + 1) * inputs if in_panel else 0):
        weight = load(panel, (place - row * inputs) * LANES)
        a = multiply_add(broadcast_at(rows, place), weight, a)
        b = multiply_add(broadcast_at(rows, place + inputs), weight, b)
        c = multiply_add(broadcast_at(rows, place + 2 * inputs), weight, c)
        d = multiply_add(broadcast_at(rows, place + 3 * inputs), weight, d)
        e = multiply_add(broadcast_at(rows, place + 4 * inputs), weight, e)
        f = multiply_add(broadcast_at(rows, place + 5 * inputs), weight, f)
        g = multiply_add(broadcast_at(rows, place + 6 * inputs), weight, g)
        h = multiply_add(broadcast_at(rows, place + 7 * inputs), weight, h)
    for step in range(0 if in_panel else inputs // STEP):
        tile = first + 2 * step * TILE
        if row == 0:
            _prefetch_tile(weights, tile + _AHEAD)
        for pair in range(LANES):
            even, odd = load_pairs(weights, tile + pair * STEP)
            place = row * inputs + step * STEP + 2 * pair
            a = _add_pair(rows, place, even, odd, a)
            b = _add_pair(rows, place + inputs, even, odd, b)
            c = _add_pair(rows, place + 2 * inputs, even, odd, c)
            d = _add_pair(rows, place + 3 * inputs, even, odd, d)
            e = _add_pair(rows, place + 4 * inputs, even, odd, e)
            f = _add_pair(rows, place + 5 * inputs, even, odd, f)
            g = _add_pair(rows, place + 6 * inputs, even, odd, g)
            h = _add_pair(rows, place + 7 * inputs, even, odd, h)
    to = row * outputs + column
    _store_four(out, to, outputs, a, b, c, d)
    _store_four(out, to + 4 * outputs, outputs, e, f, g, h)


@njit
def _four_rows(
    rows: Any, row: int, inputs: int, weights: Any, first: int, bias: Any, column: int,
    outputs: int, panel: Any, in_panel: bool, out: Any,
) -> None:  # fmt: skip
    """The same, four inputs at a time."""
    a = b = c = d = load(bias, column)
    place = row * inputs
    for one in range(0, inputs if in_panel else 0, 4):
        a, b, c, d = four_by_four(rows, place + one, inputs, panel, one * LANES, a, b, c, d)
    for step in range(0 if in_panel else inputs // STEP):
        tile = first + 2 * step * TILE
        if row == 0:
            _prefetch_tile(weights, tile + _AHEAD)
        for one in range(0, STEP, 4):
            a, b, c, d = four_by_four(
                rows, place + step * STEP + one, inputs, weights, tile + one * LANES, a, b, c, d
            )
    _store_four(out, row * outputs + column, outputs, a, b, c, d)


@njit(inline="always")
def _store_four(out: Any, to: int, apart: int, a: Any, b: Any, c: Any, d: Any) -> None:
    store(out, to, a)
    store(out, to + apart, b)
    store(out, to + 2 * apart, c)
    store(out, to + 3 * apart, d)


@njit(inline="always")
def _prefetch_tile(weights: Any, at: int) -> None:
    for line in range(0, TILE, _LINE):
        prefetch(weights, at + line)


@njit
def _to_floats(weights: Any, first: int, steps: int, panel: Any) -> None:
    """The weights of sixteen outputs, input by input."""
    for step in range(steps):
        for pair in range(LANES):
            even, odd = load_pairs(weights, first + 2 * step * TILE + pair * STEP)
            to = (step * STEP + 2 * pair) * LANES
            store(panel, to, even)
            store(panel, to + LANES, odd)


@njit(inline="always")
def _add_pair(rows: Any, at: int, even: Any, odd: Any, total: Any) -> Any:
    total = multiply_add(broadcast_at(rows, at), even, total)
    return multiply_add(broadcast_at(rows, at + 1), odd, total)


def begin(*_: Any) -> Any:
    """Before the first product of a thread: gives tiles as many rows as there are, or sixteen."""


@overload(begin, strict=False)
def _begin(rows: Any, count: Any) -> Any:
    def configure(rows: Any, count: Any) -> None:
        amx.configure(pointer(_CONFIGS), min(count, LANES))

    def nothing(rows: Any, count: Any) -> None:
        pass

    return configure if by_tiles(rows) else nothing


def end(*_: Any) -> Any:
    """After the last one."""


@overload(end, strict=False)
def _end(rows: Any) -> Any:
    def release(rows: Any) -> None:
        amx.release()

    def nothing(rows: Any) -> None:
        pass

    return release if by_tiles(rows) else nothing
