"""Products of a query's few rows with weights, compiled.

Weights are bfloat16 in tiles (see `amx`) of 32 inputs by 16 outputs, two inputs side by side, and
in the order in which they are read. There are three ways to multiply: matrix tiles, which take rows
of bfloat16; vectors of whole numbers, which lie in an order of their own (see `row_integers`);
and vectors of float32 (see `simd`), which run on any processor. The types of rows and weights
decide which way is compiled. Arrays come as pointers; all widths are multiples of 32.
"""

from typing import Any, Literal

from numba import njit, types
from numba.extending import overload

from glassrank.nn.cpu import amx, row_integers, wide_registers
from glassrank.nn.cpu.row_blocks import AHEAD, BFLOATS, LINE, STEP, TILE, Numbers, rows_by_columns
from glassrank.nn.cpu.row_integers import BYTES, INTEGERS
from glassrank.nn.cpu.simd import LANES, load, load_pairs, pointer, prefetch, store
from glassrank.nn.cpu.simd_math import four_by_four

Way = Literal["tiles", "integers", "floats"]

_CONFIGS = amx.tile_configs().reshape(-1)
_TWELVE, _EIGHT, _FOUR = 12, 8, 4
_FEW = 8
"""Of more rows than these, multiplied by four at a time, weights are brought to float32 once for
all: a short query waits for its weights to be read."""


def ways() -> list[Way]:
    """Those that this processor has, the fastest first."""
    usable: dict[Way, bool] = {"tiles": amx.usable(), "integers": row_integers.usable()}
    return [*(way for way, there in usable.items() if there), "floats"]


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
    if by_tiles(rows):
        return _multiply_tiles
    if weights.dtype in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS[weights.dtype]
    return _multiply_bfloats if wide_registers() else _multiply_fours


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
                    for line in range(0, 2 * TILE, LINE):
                        prefetch(weights, tile + AHEAD + line)
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


def _in_blocks(kind: Numbers) -> Any:
    """Twelve rows at a time, and what is left by the least of three blocks that holds it."""
    twelve_rows, eight_rows, four_rows = (
        rows_by_columns(count, kind) for count in (_TWELVE, _EIGHT, _FOUR)
    )
    taken, head = kind.taken, kind.head

    def multiply_blocks(
        rows: Any, count: Any, inputs: Any, weights: Any, at: Any, bias: Any, outputs: Any,
        panel: Any, out: Any,
    ) -> Any:  # fmt: skip
        given = taken(rows, count, inputs, panel)
        for column in range(0, outputs, STEP):
            row = 0
            while count - row > _EIGHT:
                twelve_rows(given, row, inputs, weights, at, bias, column, outputs, out)
                row += _TWELVE
            if count - row > _FOUR:
                eight_rows(given, row, inputs, weights, at, bias, column, outputs, out)
            elif row < count:
                four_rows(given, row, inputs, weights, at, bias, column, outputs, out)
            at += inputs // STEP * 2 * TILE + head
        return at

    return multiply_blocks


_multiply_bfloats = _in_blocks(BFLOATS)
_WHOLE_NUMBERS = {types.int16: _in_blocks(INTEGERS), types.int8: _in_blocks(BYTES)}


def _multiply_fours(
    rows: Any, count: Any, inputs: Any, weights: Any, at: Any, bias: Any, outputs: Any, panel: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Four rows and sixteen outputs at a time, where registers are fewer or less wide."""
    steps = inputs // STEP
    for column in range(0, outputs, LANES):
        first = at + column // STEP * 2 * steps * TILE + column % STEP // LANES * TILE
        if count > _FEW:
            _to_floats(weights, first, steps, panel)
        for row in range(0, count, _FOUR):
            _four_by_sixteen(
                rows, row, inputs, weights, first, bias, column, outputs, panel, count > _FEW, out
            )
    return at + outputs // STEP * 2 * steps * TILE


@njit
def _four_by_sixteen(
    rows: Any, row: int, inputs: int, weights: Any, first: int, bias: Any, column: int,
    outputs: int, panel: Any, in_panel: bool, out: Any,
) -> None:  # fmt: skip
    """Four inputs at a time, by the weights from `first` on, or by those that are in the panel as
    float32."""
    a = b = c = d = load(bias, column)
    place = row * inputs
    for one in range(0, inputs if in_panel else 0, 4):
        a, b, c, d = four_by_four(rows, place + one, inputs, panel, one * LANES, a, b, c, d)
    for step in range(0 if in_panel else inputs // STEP):
        tile = first + 2 * step * TILE
        if row == 0:
            _prefetch_tile(weights, tile + AHEAD)
        for one in range(0, STEP, 4):
            a, b, c, d = four_by_four(
                rows, place + step * STEP + one, inputs, weights, tile + one * LANES, a, b, c, d
            )
    to = row * outputs + column
    store(out, to, a)
    store(out, to + outputs, b)
    store(out, to + 2 * outputs, c)
    store(out, to + 3 * outputs, d)


@njit(inline="always")
def _prefetch_tile(weights: Any, at: int) -> None:
    for line in range(0, TILE, LINE):
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
