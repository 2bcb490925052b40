"""A transformer's blocks for the few rows of one query on a CPU: the same rows out, sooner.

One query is so little work that a processor's time goes into reading the weights. So they are
bfloat16, in the order in which one compiled pass reads them (`few_rows_pass`), by matrix tiles
where the processor has them and by vectors elsewhere. Heads, columns and rows are filled up with
zeros to whole tiles, which changes nothing; each share of the work has its weights of all blocks
one after another. `query_encoders.py` names the plain forms; `nn/gpu/few_rows.py` is the same for a
GPU.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from glassrank.errors import InputError
from glassrank.nn.cpu import amx
from glassrank.nn.cpu.barrier import counters
from glassrank.nn.cpu.few_rows_pass import (
    ATTENTION,
    FEED_FORWARD,
    NUMBERS,
    PLAN,
    Blocks,
    Entry,
    Workspace,
    pass_rows,
)
from glassrank.nn.cpu.row_products import STEP
from glassrank.nn.cpu.row_steps import ASKERS
from glassrank.nn.cpu.simd import LANES
from glassrank.nn.threads import lead, threads_allowed

_MOST_SHARES = 8
"""Each adds a sum as large as all rows."""
_WORTH = 2_000_000
"""Weights that take longer to read than waking a thread does."""
_ALONE = 20
"""Texts that one thread encodes after others came too late: the machine is busy."""


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


class FewRows:
    """Called with the ids of one text and where its rows come from; several threads may call it.
    Weights are taken over as they are now."""

    def __init__(
        self,
        blocks: Sequence[Block],
        size: int,
        *,
        threads: int | None = None,
        tiles: bool | None = None,
    ) -> None:
        """`threads` are torch's unless told otherwise, or fewer where there is little to do; if
        torch is given fewer later on, no more are used.
        `tiles` says whether to use the processor's matrix tiles: None is yes, where there are
        any."""
        if tiles and not amx.usable():
            raise InputError("tiles need a processor with AMX; leave the choice open")
        self.tiles = amx.usable() if tiles is None else tiles
        self.size, self._width = size, whole(size)
        packed = [packed_block(block, self._width) for block in blocks]
        most = min([_MOST_SHARES, os.cpu_count() or 1, *(block.units for block in packed)])
        worth = sum(block.first.numel() + block.second.numel() for block in packed) // _WORTH
        wanted = min(worth, torch.get_num_threads()) if threads is None else threads
        self._shares = max(1, min(most, wanted)) if packed else 1
        self._threads = threads
        self._blocks = laid_out(blocks, packed, size, self._shares)
        self._widest = max((widest(block, self._shares) for block in packed), default=STEP)
        self._channels = max((block.channels for block in packed), default=0)
        self._alone = 0
        self._free: defaultdict[int, list[Workspace]] = defaultdict(list)

    def __call__(self, ids: NDArray[np.int64], entry: Entry) -> NDArray[np.float32]:
        """(L,) to (L, size)."""
        self._check(ids, entry)
        out = np.empty((len(ids), self.size), np.float32)
        if not len(ids):
            return out
        most = -(-len(ids) // LANES) * LANES
        free = self._free[most]
        space = free.pop() if free else self._workspace(most)
        self._alone -= 1
        threads = self._threads or threads_allowed()
        invited = 0 if self._alone > 0 else min(self._shares, threads) - 1
        job = (ids, entry, self._blocks, space, counters(), invited)
        came: int = lead(lambda leads: pass_rows(*job, leads, out), invited)
        if came:
            free.append(
                space
            )  # whoever comes later finds the barrier closed, and does not touch it
        if came <= invited:
            self._alone = _ALONE
        return out

    def _check(self, ids: NDArray[np.int64], entry: Entry) -> None:
        """Compiled code checks nothing, so what it could read by mistake is refused here."""
        if ids.ndim != 1 or ids.dtype != np.int64 or not ids.flags.c_contiguous:
            raise InputError(f"ids must be whole numbers of one text, not {ids.shape} {ids.dtype}")
        if len(ids) > len(entry.places):
            raise InputError(
                f"a text of {len(ids)} pieces is longer than the {len(entry.places)} that there "
                "are positions for; cut it before it is encoded"
            )
        if len(ids) and not 0 <= ids.min() <= ids.max() < len(entry.table):
            raise InputError(
                f"ids must lie between 0 and {len(entry.table) - 1}, not {ids.min()} and "
                f"{ids.max()}; read texts with the vocabulary that belongs to the model"
            )
        for array, columns in ((entry.table, self.size), (entry.places, self.size),
                               (entry.norm, self._width)):  # fmt: skip
            fits = array.ndim == 2 and array.shape[1] == columns and array.flags.c_contiguous
            if array.dtype != np.float32 or not fits:
                raise InputError(f"rows must be {columns} float32 each, not {array.shape}")

    def _workspace(self, most: int) -> Workspace:
        kind: Any = np.uint16 if self.tiles else np.float32

        def room(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
            return _aligned(np.dtype(dtype), *shape)

        shares, width = self._shares, self._width
        return Workspace(
            x=room(shares, most, width),
            rows=room(shares, most, width, dtype=kind),
            inside=room(shares, most, 3 * self._widest),
            inner=room(shares, most, self._widest, dtype=kind),
            turned=room(shares, self._channels + ASKERS, most),
            sums=room(3, shares, most, width),
        )

    def norm(self, *gain_and_shift: Tensor) -> NDArray[np.float32]:
        """For an `Entry`: (2, width), or (0, width) for none."""
        norm = np.zeros((len(gain_and_shift), self._width), np.float32)
        for row, values in zip(norm, gain_and_shift, strict=True):
            row[: self.size] = plain(values).numpy()
        return norm


def real_length(mask: Tensor) -> int:
    """Of a mask (1, L) that is 1 and then 0."""
    real = mask[0].numpy()
    length = int(np.count_nonzero(real))
    if not (real[:length] == 1).all():
        raise InputError("a mask must be 1 for a text's first words and 0 for padding after them")
    return length


def with_padding(rows: Tensor, length: int) -> Tensor:
    """(L, H) to (1, length, H): zeros follow."""
    missing = length - len(rows)
    return (functional.pad(rows, (0, 0, 0, missing)) if missing else rows)[None]


def _aligned(dtype: np.dtype[Any], *shape: int) -> NDArray[Any]:
    """Zeros that begin at a line of the cache, as torch's memory does."""
    size = int(np.prod(shape)) * dtype.itemsize
    return torch.zeros(size, dtype=torch.uint8).numpy().view(dtype).reshape(shape)


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
    """As many as whole tiles hold."""
    return -(-count // STEP) * STEP


def plain(tensor: Tensor) -> Tensor:
    """As float32 on the CPU, without gradients."""
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
    """The most columns between the products that a share has."""
    spans = (_span(block, share, shares) for share in range(shares))
    return max((last - first) * block.unit for first, last in spans)


def laid_out(
    blocks: Sequence[Block], packed: Sequence[PackedBlock], size: int, shares: int
) -> Blocks:
    """All blocks as one compiled pass reads them."""
    width = whole(size)
    streams, starts, at = [torch.empty(0, dtype=torch.bfloat16)], [], 0
    for share in range(shares):
        for padded in packed:
            first, last = _span(padded, share, shares)
            columns = len(padded.bias) // padded.units
            streams.append(_in_tiles(padded.first[first * columns : last * columns]))
            streams.append(_in_tiles(padded.second[:, first * padded.unit : last * padded.unit]))
            starts.append(at)
            at += len(streams[-2]) + len(streams[-1])
    constants = [torch.zeros(width), functional.pad(torch.ones(size), (0, width - size))]
    plan, place = [], 2 * width
    for block, padded in zip(blocks, packed, strict=True):
        spare = (0, width - size)
        gain, shift = (functional.pad(plain(x), spare) for x in (block.gain, block.shift))
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
        weights=torch.cat(streams).view(torch.uint16).numpy(),
        starts=np.array(starts, np.int64).reshape(shares, -1),
        constants=torch.cat(constants).numpy(),
    )
