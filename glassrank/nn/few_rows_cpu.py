"""A transformer's blocks for the few rows of one query on a CPU: the same rows out, sooner.

One query is so little work that a processor's time goes into reading the weights. So they are
bfloat16, in the order in which one compiled pass reads them (`few_rows_pass`), by matrix tiles
where the processor has them and by lanes elsewhere. `few_rows_triton` is the same for a GPU.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from glassrank.errors import InputError
from glassrank.nn import amx
from glassrank.nn.few_rows_pass import Entry, Workspace, pass_rows
from glassrank.nn.helpers import lead, threads_allowed
from glassrank.nn.lanes import LANES
from glassrank.nn.meeting import counters
from glassrank.nn.packed_blocks import Block, laid_out, packed_block, plain, whole, widest
from glassrank.nn.row_products import STEP
from glassrank.nn.row_steps import ASKERS

_MOST_SHARES = 8
"""Each adds a sum as large as all rows."""
_WORTH = 2_000_000
"""Weights that take longer to read than waking a thread does."""
_ALONE = 20
"""Texts that one thread encodes after others came too late: the machine is busy."""


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
            free.append(space)  # whoever comes later finds the door closed, and does not touch it
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
