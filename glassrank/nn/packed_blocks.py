"""A transformer's weights in the order in which one pass reads them (see `few_rows_pass`).

Heads, columns and rows are filled up with zeros to whole tiles, which changes nothing; each share
of the work has its weights of all blocks one after another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.nn.few_rows_pass import ATTENTION, FEED_FORWARD, NUMBERS, PLAN, Blocks
from glassrank.nn.lanes import LANES
from glassrank.nn.row_products import STEP


@dataclass(frozen=True)
class Block:
    """norm(x + second(f(first(x)))): `f` is attention of some heads, whose queries, keys and values
    `first` makes one after another, or an activation (see `row_steps`)."""

    first: nn.Linear
    second: nn.Linear
    gain: Tensor
    shift: Tensor
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

    first: Tensor  # (units * columns, width)
    bias: Tensor  # (units * columns,)
    second: Tensor  # (width, units * unit)
    other_bias: Tensor  # (width,)
    units: int
    unit: int
    channels: int


def whole(count: int) -> int:
    return -(-count // STEP) * STEP


def plain(tensor: Tensor) -> Tensor:
    return tensor.detach().float().cpu()


def packed_block(block: Block, width: int) -> PackedBlock:
    """Heads and inner columns are padded with zeros, which change nothing."""
    first, second = plain(block.first.weight), plain(block.second.weight)  # (N, K), (K, M)
    bias, other_bias = plain(block.first.bias), plain(block.second.bias)
    size, total = second.shape
    if block.heads:
        units, channels = block.heads, total // block.heads
        unit = whole(channels)
        split = first.view(3, units, channels, size).transpose(0, 1)  # (units, 3, channels, K)
        own_bias = bias.view(3, units, channels).transpose(0, 1)
        spare = unit - channels
        first = functional.pad(split, (0, 0, 0, spare)).reshape(-1, size)
        bias = functional.pad(own_bias, (0, spare)).flatten()
        second = functional.pad(second.view(size, units, channels), (0, spare)).flatten(1)
    else:
        units, unit, channels = whole(total) // STEP, STEP, 0
        spare = units * unit - total
        first, bias = functional.pad(first, (0, 0, 0, spare)), functional.pad(bias, (0, spare))
        second = functional.pad(second, (0, spare))
    more = width - size
    return PackedBlock(
        functional.pad(first, (0, more)),
        bias,
        functional.pad(second, (0, 0, 0, more)),
        functional.pad(other_bias, (0, more)),
        units,
        unit,
        channels,
    )


def _in_tiles(weight: Tensor) -> Tensor:
    """(N, K) flat, in the order in which two columns of tiles are read from top to bottom: in a
    tile, two inputs of sixteen outputs stand in a line."""
    outputs, inputs = weight.shape
    cut = weight.view(outputs // STEP, 2, LANES, inputs // STEP, LANES, 2)
    return cut.permute(0, 3, 1, 4, 2, 5).flatten().bfloat16()


def _span(block: PackedBlock, share: int, shares: int) -> tuple[int, int]:
    return block.units * share // shares, block.units * (share + 1) // shares


def widest(block: PackedBlock, shares: int) -> int:
    spans = (_span(block, share, shares) for share in range(shares))
    return max((last - first) * block.unit for first, last in spans)


def laid_out(
    blocks: Sequence[Block], packed: Sequence[PackedBlock], size: int, shares: int
) -> Blocks:
    width = whole(size)
    streams, starts, at = [torch.empty(0, dtype=torch.bfloat16)], [], 0
    for share in range(shares):
        for own in packed:
            first, last = _span(own, share, shares)
            columns = len(own.bias) // own.units
            streams.append(_in_tiles(own.first[first * columns : last * columns]))
            streams.append(_in_tiles(own.second[:, first * own.unit : last * own.unit]))
            starts.append(at)
            at += len(streams[-2]) + len(streams[-1])
    constants = [torch.zeros(width), functional.pad(torch.ones(size), (0, width - size))]
    plan, place = [], 2 * width
    for block, own in zip(blocks, packed, strict=True):
        spare = (0, width - size)
        gain, shift = (functional.pad(plain(x), spare) for x in (block.gain, block.shift))
        places = []
        for constant in (own.bias, own.other_bias, gain, shift):
            places.append(place)
            constants.append(constant)
            place += len(constant)
        kind = ATTENTION if block.heads else FEED_FORWARD
        plan.append([kind, own.units, own.unit, own.channels, block.activation, *places])
    numbers = [[b.scale * np.log2(np.e), b.inside, b.outside] for b in blocks]
    return Blocks(
        plan=np.array(plan, np.int64).reshape(-1, PLAN),
        numbers=np.array(numbers, np.float32).reshape(-1, NUMBERS),
        weights=torch.cat(streams).view(torch.uint16).numpy(),
        starts=np.array(starts, np.int64).reshape(shares, -1),
        constants=torch.cat(constants).numpy(),
    )
