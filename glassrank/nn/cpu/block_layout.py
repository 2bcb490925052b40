"""A transformer's blocks in the order in which one compiled pass reads them (`few_rows_pass`).

Heads, columns and rows are filled up with zeros to whole tiles, which changes nothing; each share
of the work has its weights of all blocks one after another, in 16 bits (`row_products`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.nn.cpu.few_rows_pass import ATTENTION, FEED_FORWARD, NUMBERS, PLAN, Blocks
from glassrank.nn.cpu.row_blocks import STEP
from glassrank.nn.cpu.row_integers import bytes_of, integers_of
from glassrank.nn.cpu.row_products import Way
from glassrank.nn.cpu.simd import LANES, LINE
from glassrank.nn.few_bits import bits_of


@dataclass(frozen=True)
class Block:
    """norm(x + second(f(first(x)))): `f` is attention of some heads, whose queries, keys and values
    `first` makes one after another, or an activation (see `row_steps`)."""

    first: NDArray[Any]  # (N, K)
    first_bias: NDArray[Any]  # (N,)
    second: NDArray[Any]  # (M, N or fewer)
    second_bias: NDArray[Any]  # (M,)
    gain: NDArray[Any]  # (M,)
    shift: NDArray[Any]  # (M,)
    inside: float = 0.0
    """The norm's epsilon, added to the variance."""
    outside: float = 0.0
    """The same, added to the deviation."""
    heads: int = 0
    """0: not attention."""
    scale: float = 1.0
    activation: int = 0


@dataclass(frozen=True)
class PackedBlock:
    """A block with whole units: heads, or 32 columns between its products, with zeros in them."""

    first: NDArray[np.float32]  # (units * columns, width)
    bias: NDArray[np.float32]  # (units * columns,)
    second: NDArray[np.float32]  # (width, units * unit)
    other_bias: NDArray[np.float32]  # (width,)
    units: int
    unit: int
    channels: int


def whole(count: int) -> int:
    """As many as whole tiles hold."""
    return -(-count // STEP) * STEP


def packed_block(block: Block, width: int) -> PackedBlock:
    """Heads and inner columns are padded with zeros, which change nothing."""
    size, total = block.second.shape  # the outputs of one product, and what it takes
    if block.heads:
        units, channels = block.heads, total // block.heads
        unit = whole(channels)
        first: NDArray[np.float32] = np.zeros((units, 3, unit, width), np.float32)
        bias: NDArray[np.float32] = np.zeros((units, 3, unit), np.float32)
        second: NDArray[np.float32] = np.zeros((width, units, unit), np.float32)
        first[:, :, :channels, :size] = block.first.reshape(3, units, channels, size).swapaxes(0, 1)
        bias[:, :, :channels] = block.first_bias.reshape(3, units, channels).swapaxes(0, 1)
        second[:size, :, :channels] = block.second.reshape(size, units, channels)
    else:
        units, unit, channels = whole(total) // STEP, STEP, 0
        first = np.zeros((units * unit, width), np.float32)
        bias = np.zeros(units * unit, np.float32)
        second = np.zeros((width, units * unit), np.float32)
        first[:total, :size], bias[:total] = block.first, block.first_bias
        second[:size, :total] = block.second
    return PackedBlock(
        first.reshape(-1, width),
        bias.reshape(-1),
        second.reshape(width, -1),
        _padded(block.second_bias, width),
        units,
        unit,
        channels,
    )


def _padded(values: NDArray[Any], width: int) -> NDArray[np.float32]:
    padded = np.zeros(width, np.float32)
    padded[: len(values)] = values
    return padded


def _in_tiles(weight: NDArray[np.float32]) -> NDArray[np.uint16]:
    """(N, K) flat, in the order in which two columns of tiles are read from top to bottom: in a
    tile, two inputs of sixteen outputs stand in a line."""
    return _ordered(bits_of(weight)).reshape(-1)


def in_whole_numbers(numbers: NDArray[Any], scales: NDArray[np.float32]) -> NDArray[Any]:
    """The same, with the scales (N,) of 32 outputs before their weights."""
    heads = scales.reshape(-1, STEP).view(numbers.dtype)  # (N / 32, head)
    return np.concatenate([heads, _ordered(numbers)], 1).reshape(-1)


def _ordered(weight: NDArray[Any]) -> NDArray[Any]:
    """Bfloat16 a tile after the other; of whole numbers, both sides of two inputs together."""
    outputs, inputs = weight.shape
    cut = weight.reshape(outputs // STEP, 2, LANES, inputs // STEP, LANES, 2)
    order = (0, 3, 1, 4, 2, 5) if weight.dtype == np.uint16 else (0, 3, 4, 1, 2, 5)
    return cut.transpose(order).reshape(outputs // STEP, STEP * inputs)


Pack = Callable[[int, slice, slice], NDArray[Any]]
"""Of a matrix, by its number, some rows and columns as products take them."""


def _packing(matrices: Sequence[NDArray[np.float32]], way: Way) -> Pack:
    """In 8 bits if all of them were made of so few."""
    if way != "integers":
        return lambda number, rows, columns: _in_tiles(matrices[number][rows, columns])
    whole_numbers: list[tuple[NDArray[Any], NDArray[np.float32]]] = []
    for matrix in matrices:
        small = bytes_of(matrix)
        if small is None:
            whole_numbers = [integers_of(matrix) for matrix in matrices]
            break
        whole_numbers.append(small)

    def pack(number: int, rows: slice, columns: slice) -> NDArray[Any]:
        numbers, scales = whole_numbers[number]
        return in_whole_numbers(numbers[rows, columns], scales[rows])

    return pack


def _span(block: PackedBlock, share: int, shares: int) -> tuple[int, int]:
    return block.units * share // shares, block.units * (share + 1) // shares


def widest(block: PackedBlock, shares: int) -> int:
    """The most columns between the products that a share has."""
    spans = (_span(block, share, shares) for share in range(shares))
    return max((last - first) * block.unit for first, last in spans)


def laid_out(
    blocks: Sequence[Block],
    packed: Sequence[PackedBlock],
    size: int,
    shares: int,
    distances: NDArray[Any] | None,
    way: Way,
) -> Blocks:
    """All blocks as one compiled pass reads them that multiplies in this way."""
    width = whole(size)
    pack = _packing([matrix for padded in packed for matrix in (padded.first, padded.second)], way)
    streams, starts, at = [], [], 0
    for share in range(shares):
        for number, padded in enumerate(packed):
            first, last = _span(padded, share, shares)
            before = len(padded.bias) // padded.units
            rows = slice(first * before, last * before)
            columns = slice(first * padded.unit, last * padded.unit)
            streams.append(pack(2 * number, rows, slice(None)))
            streams.append(pack(2 * number + 1, slice(None), columns))
            starts.append(at)
            at += len(streams[-2]) + len(streams[-1])
    constants = [np.zeros(width, np.float32), _padded(np.ones(size), width)]
    plan, place = [], 2 * width
    for block, padded in zip(blocks, packed, strict=True):
        gain, shift = _padded(block.gain, width), _padded(block.shift, width)
        places = []
        for constant in (padded.bias, padded.other_bias, gain, shift):
            places.append(place)
            constants.append(constant)
            place += len(constant)
        kind = ATTENTION if block.heads else FEED_FORWARD
        units = [padded.units, padded.unit, padded.channels]
        plan.append([kind, *units, block.activation, *places])
    numbers = [[b.scale * np.log2(np.e), b.inside, b.outside] for b in blocks]
    return Blocks(
        plan=np.array(plan, np.int64).reshape(-1, PLAN),
        numbers=np.array(numbers, np.float32).reshape(-1, NUMBERS),
        weights=_in_lines(streams),
        starts=np.array(starts, np.int64).reshape(shares, -1),
        constants=np.concatenate(constants),
        distances=_with_room(distances),
    )


def _with_room(distances: NDArray[Any] | None) -> NDArray[np.float32]:
    """In powers of two; whole vectors are read from any place in it."""
    if distances is None:
        return np.zeros((0, 0), np.float32)
    room = np.zeros((len(distances), distances.shape[1] + LANES), np.float32)
    room[:, : distances.shape[1]] = distances * np.log2(np.e)
    return room


def _in_lines(streams: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One after another, from the beginning of a line of the cache: a load is then of one line."""
    if not streams:
        return np.zeros(0, np.uint16)
    all_of_them = aligned(streams[0].dtype, sum(map(len, streams)))
    return np.concatenate(streams, out=all_of_them)


def aligned(dtype: np.dtype[Any], *shape: int) -> NDArray[Any]:
    """Zeros that begin at a line of the cache."""
    size = int(np.prod(shape)) * dtype.itemsize
    room = np.zeros(size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + size].view(dtype).reshape(shape)
