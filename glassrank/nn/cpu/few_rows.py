"""A transformer's blocks for the few rows of one text, or of some, on a CPU: the same rows out,
sooner.

One query is so little work that a processor's time goes into reading the weights. So they have 16
bits, in the order (`block_layout`) in which one compiled pass reads them (`few_rows_pass`), by
matrix tiles where the processor has them and by vectors elsewhere (`row_products`). Rows of several
texts stand one after another; only attention looks at texts.
`text_encoders.py` names the plain forms; `nn/gpu/few_rows.py` is the same for a GPU.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import LateError, must_end
from glassrank.errors import InputError
from glassrank.nn.cpu.barrier import counters, moment
from glassrank.nn.cpu.block_layout import Block, aligned, laid_out, packed_block, whole, widest
from glassrank.nn.cpu.few_rows_pass import Entry, Workspace, pass_rows
from glassrank.nn.cpu.row_blocks import STEP
from glassrank.nn.cpu.row_integers import panel_size
from glassrank.nn.cpu.row_products import Way, ways
from glassrank.nn.cpu.row_steps import ASKERS, TileRoom, room_sizes
from glassrank.nn.cpu.simd import LANES
from glassrank.nn.threads import lead, threads_allowed, threads_set

_MOST_SHARES = 8
"""Each adds a sum as large as all rows."""
_FEWEST_WEIGHTS = {"tiles": 2_000_000, "integers": 500_000, "floats": 500_000}
"""Of a share: they take longer to read, or to multiply, than waking a thread does."""
_WORTH = 25_000_000
"""Multiplications without tiles that are worth another thread."""
_FIRST_ALONE, _ALONE = 2, 20
"""How many texts later others are invited again that came and then did not go on: the machine is
busy. After each further time in a row it is twice as many, up to the second of these."""


class FewRows:
    """Called with the ids of one text, or of several, and where their rows come from; several
    threads may call it. Weights are taken over as they are now."""

    def __init__(
        self,
        blocks: Sequence[Block],
        size: int,
        *,
        distances: NDArray[Any] | None = None,
        threads: int | None = None,
        way: Way | None = None,
    ) -> None:
        """`distances` (heads, 2 * longest - 1) are what heads add to scores by where the other row
        stands, from the farthest before to the farthest after; texts are no longer than that.
        `threads` are as many as `threads_allowed` says, unless told otherwise, or fewer where there
        is little to do; if it says fewer later on, no more are used.
        `way` says how to multiply: None is the fastest that the processor has."""
        there = ways()
        if way is not None and way not in there:
            raise InputError(f"this processor has no {way}; leave the choice open")
        self.way = way or there[0]
        self.size, self._width = size, whole(size)
        packed = [packed_block(block, self._width) for block in blocks]
        most = min([_MOST_SHARES, os.cpu_count() or 1, *(block.units for block in packed)])
        self._weights = sum(block.first.size + block.second.size for block in packed)
        shares = self._weights // _FEWEST_WEIGHTS[self.way]
        wanted = min(shares, threads_allowed()) if threads is None else threads
        self._shares = max(1, min(most, wanted)) if packed else 1
        self._threads = threads
        self._blocks = laid_out(blocks, packed, size, self._shares, distances, self.way)
        self._widest = max((widest(block, self._shares) for block in packed), default=STEP)
        self._channels = max((block.channels for block in packed), default=0)
        self._alone, self._next_alone = 0, _FIRST_ALONE
        self._free: defaultdict[int, list[Workspace]] = defaultdict(list)

    def __call__(
        self, ids: NDArray[np.int64], entry: Entry, lengths: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """(T,) to (T, size): one text, or texts of these lengths, one after another. Threads share
        it if there is enough to do, unless each of them has texts of its own (`threads.apart`).
        Between two blocks it ends with a LateError if this thread's work must end."""
        texts = np.array([len(ids)]) if lengths is None else np.ascontiguousarray(lengths, np.int64)
        self._check(ids, texts, entry)
        out = np.empty((len(ids), self.size), np.float32)
        if not len(ids):
            return out
        most = _room_for(len(ids))
        free = self._free[most]
        space = free.pop() if free else self._workspace(most)
        given = self.way == "tiles" or self._threads is not None
        much = given or len(ids) * self._weights >= _WORTH
        self._alone -= much
        threads = self._threads or (threads_allowed() if lengths is None else threads_set())
        invited = min(self._shares, threads) - 1 if much and self._alone <= 0 else 0
        until = moment(must_end().left())
        job = (ids, texts, entry, self._blocks, space, counters(), until)
        came: int = lead(lambda leads: pass_rows(*job, leads, out), invited)
        if came > 0 or not invited:
            # Whoever comes later finds the barrier closed, and does not touch it.
            free.append(space)
        if came < 0:
            raise LateError("there was not enough time to encode a text; allow more")
        if came == 0:
            self._alone, self._next_alone = self._next_alone, min(2 * self._next_alone, _ALONE)
        elif invited:
            self._next_alone = _FIRST_ALONE
        return out

    def _check(self, ids: NDArray[np.int64], texts: NDArray[np.int64], entry: Entry) -> None:
        """Compiled code checks nothing, so what it could read by mistake is refused here."""
        if ids.ndim != 1 or ids.dtype != np.int64 or not ids.flags.c_contiguous:
            raise InputError(f"ids must be whole numbers of one text, not {ids.shape} {ids.dtype}")
        if texts.min(initial=0) < 0 or texts.sum() != len(ids):
            raise InputError(f"{len(ids)} ids are not those of texts of these lengths")
        if texts.max(initial=0) > len(entry.places):
            raise InputError(
                f"a text of {texts.max()} pieces is longer than the {len(entry.places)} that there "
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
        kind: Any = np.uint16 if self.way == "tiles" else np.float32

        def room(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
            return aligned(np.dtype(dtype), *shape)

        shares, width = self._shares, self._width
        words, pairs, floats = room_sizes(most if self.way == "tiles" else 0)
        return Workspace(
            x=room(shares, most, width),
            rows=room(shares, most, width, dtype=kind),
            inside=room(shares, most, 3 * self._widest),
            inner=room(shares, most, self._widest, dtype=kind),
            turned=room(shares, self._channels + ASKERS, most),
            room=TileRoom(
                room(shares, words, dtype=np.uint16),
                room(shares, pairs, dtype=np.uint32),
                room(shares, floats),
            ),
            panel=room(shares, self._panel(most)),
            sums=room(3, shares, most, width),
        )

    def _panel(self, most: int) -> int:
        inputs = max(self._width, self._widest)
        sizes = {"tiles": 0, "integers": panel_size(most, inputs), "floats": inputs * LANES}
        return sizes[self.way]

    def norm(self, *gain_and_shift: NDArray[Any]) -> NDArray[np.float32]:
        """For an `Entry`: (2, width), or (0, width) for none."""
        norm = np.zeros((len(gain_and_shift), self._width), np.float32)
        for row, values in zip(norm, gain_and_shift, strict=True):
            row[: self.size] = values
        return norm


_FEW = 64


def _room_for(rows: int) -> int:
    """Whole tiles; of many rows, one of a few numbers, since room is kept for each."""
    return -(-rows // LANES) * LANES if rows <= _FEW else 1 << (rows - 1).bit_length()
