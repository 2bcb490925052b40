"""One pass of the rows of a text, or of some texts, through all blocks of a transformer, compiled.

A block is attention or a feed-forward layer, and the norm of what it adds to its rows. Inside, it
falls apart into heads, or columns between its two products: each thread takes its share of them
through both products, so that threads wait for each other once in a block, with a sum of all
outputs from each share. These are added in one order, however many threads there are.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from glassrank.compiled import compiled
from glassrank.nn import cpu
from glassrank.nn.cpu import (
    amx,
    attention,
    barrier,
    row_blocks,
    row_integers,
    row_products,
    row_steps,
    simd,
    simd_math,
)
from glassrank.nn.cpu.barrier import (
    admit,
    admitted,
    all_came,
    arrive,
    begin_step,
    begun,
    clock,
    dismiss,
    goes_on,
    join,
)
from glassrank.nn.cpu.row_products import begin, end, multiply
from glassrank.nn.cpu.row_steps import TileRoom, activate, attend_text, normalise
from glassrank.nn.cpu.simd import (
    LANES,
    flush_denormals,
    load,
    offset,
    pointer,
    restore_denormals,
    store,
    store_one,
    written,
)

ATTENTION, FEED_FORWARD = 0, 1
PLAN, NUMBERS = 9, 3
"""Of a block: whole numbers, and others."""


class Blocks(NamedTuple):
    """A transformer's blocks. Constants are float32, at the places that `plan` names: a bias for
    the first product, one for the second, a norm's gain and shift; and at 0 as many zeros as a
    row is wide, then ones for its real values."""

    plan: NDArray[np.int64]
    """(blocks, PLAN): kind, units, columns of a unit before the second product (a multiple of 32),
    channels of a head, activation, and the places of the four constants."""
    numbers: NDArray[np.float32]
    """(blocks, NUMBERS): a head's scale, and a norm's epsilons in the root and beside it."""
    weights: NDArray[Any]
    """Bfloat16, or whole numbers (see `row_products`): of each share all blocks, in the order in
    which they are read."""
    starts: NDArray[np.int64]
    """(shares, blocks) in the weights."""
    constants: NDArray[np.float32]
    distances: NDArray[np.float32]
    """(heads, span): what all layers add to scores, in powers of two, from the farthest piece
    before to the farthest after, and room for one more load; (0, 0) for none."""


class Entry(NamedTuple):
    """Where rows come from: table[id] + place, and a norm if there is one."""

    table: NDArray[np.float32]  # (V, size)
    places: NDArray[np.float32]  # (longest, size)
    norm: NDArray[np.float32]  # (2, width): gain and shift; (0, width) for none
    epsilon: np.float32


class Workspace(NamedTuple):
    """Memory for one pass; all but the sums is divided between those who take part."""

    x: NDArray[np.float32]  # (shares, most, width)
    rows: NDArray[Any]  # (shares, most, width): the same as products take them
    inside: NDArray[np.float32]  # (shares, most, widest): of a share, after the first product
    inner: NDArray[Any]  # (shares, most, widest): the same as the second one takes it
    turned: NDArray[np.float32]  # (shares, channels + ASKERS, most): keys, then scores
    room: TileRoom  # each (shares, …)
    panel: NDArray[np.float32]  # (shares, …): weights of some outputs, or rows as whole numbers
    sums: NDArray[np.float32]
    """(3, shares, most, width): two that blocks take in turn, so that nobody writes what another
    still reads, and one for the leader when it is alone."""


@njit
def _enter_rows(
    ids: Any, texts: Any, entry: Any, size: int, width: int, real: Any, x: Any, rows: Any
) -> None:
    table, places, norm = pointer(entry.table), pointer(entry.places), pointer(entry.norm)
    whole, normed = size // LANES * LANES, len(entry.norm) > 0
    text, begins = 0, 0
    for row in range(len(ids)):
        while row - begins >= texts[text]:
            begins += texts[text]
            text += 1
        word, place, to = ids[row] * size, (row - begins) * size, row * width
        for column in range(0, whole, LANES):
            store(x, to + column, load(table, word + column) + load(places, place + column))
        for column in range(whole, width):
            inside = column < size
            value = table[word + column] + places[place + column] if inside else np.float32(0)
            store_one(x, to + column, value)
        if normed:
            normalise(
                x, row, width, size, real, norm, offset(norm, width), entry.epsilon,
                np.float32(0), rows,
            )  # fmt: skip
        else:
            for column in range(0, width, LANES):
                store(rows, to + column, load(x, to + column))


@njit
def _copy_rows(size: int, from_x: Any, x: Any, from_rows: Any, rows: Any) -> None:
    """The leader's, as they are before a block, for one who joins at it."""
    for at in range(0, size, LANES):
        store(x, at, load(from_x, at))
        store(rows, at, load(from_rows, at))


@njit
def _work_on_share(
    blocks: Any, block: int, share: int, count: int, texts: Any, width: int, number: int,
    space: Any, turn: int,
) -> None:  # fmt: skip
    """Its sums, of the rows that participant `number` has."""
    shares, most = space.sums.shape[1], space.x.shape[1]
    plan, constants = offset(pointer(blocks.plan), block * PLAN), pointer(blocks.constants)
    kind, units, unit, channels = plan[0], plan[1], plan[2], plan[3]
    first, last = units * share // shares, units * (share + 1) // shares
    rows = offset(pointer(space.rows), number * most * width)
    inside = offset(pointer(space.inside), number * most * space.inside.shape[2])
    inner = offset(pointer(space.inner), number * most * space.inner.shape[2])
    panel = offset(pointer(space.panel), number * space.panel.shape[1])
    weights = pointer(blocks.weights)
    before = unit * (3 if kind == ATTENTION else 1)  # columns of a unit after the first product
    at = multiply(
        rows, count, width, weights, pointer(blocks.starts)[share * len(blocks.plan) + block],
        offset(constants, plan[5] + first * before), (last - first) * before, panel,
        inside,
    )  # fmt: skip
    if kind == ATTENTION:
        scale = pointer(blocks.numbers)[block * NUMBERS]
        turned = offset(pointer(space.turned), number * most * space.turned.shape[1])
        scores = offset(turned, channels * most)
        words = offset(pointer(space.room.words), number * space.room.words.shape[1])
        pairs = offset(pointer(space.room.pairs), number * space.room.pairs.shape[1])
        floats = offset(pointer(space.room.floats), number * space.room.floats.shape[1])
        span = blocks.distances.shape[1]
        apart = offset(pointer(blocks.distances), first * span)
        begins = 0
        for length in texts:
            asking = offset(inside, begins * (last - first) * before)
            to = offset(inner, begins * (last - first) * unit)
            attend_text(
                asking, length, last - first, channels, unit, scale, apart, span, turned, most,
                scores, words, pairs, floats, to,
            )  # fmt: skip
            begins += length
    else:
        activate(inside, count * (last - first) * unit, plan[4], inner)
    multiply(
        inner, count, (last - first) * unit, weights, at,
        offset(constants, 0 if share else plan[6]), width, panel,
        offset(pointer(space.sums), (turn * shares + share) * most * width),
    )  # fmt: skip


@njit
def _add_and_norm(
    blocks: Any, block: int, count: int, size: int, width: int, number: int, space: Any, turn: int
) -> None:
    shares, apart = space.sums.shape[1], space.x.shape[1] * width
    x = offset(pointer(space.x), number * apart)
    rows = offset(pointer(space.rows), number * apart)
    plan, constants = offset(pointer(blocks.plan), block * PLAN), pointer(blocks.constants)
    real, gain, shift = (
        offset(constants, width), offset(constants, plan[7]), offset(constants, plan[8])
    )  # fmt: skip
    sums = offset(pointer(space.sums), turn * shares * apart)
    numbers = offset(pointer(blocks.numbers), block * NUMBERS)
    for row in range(count):
        for column in range(0, width, LANES):
            at = row * width + column
            value = load(x, at)
            for share in range(shares):
                value = value + load(sums, share * apart + at)
            store(x, at, value)
        normalise(x, row, width, size, real, gain, shift, numbers[1], numbers[2], rows)


def _compiled(*sources: float) -> Any:
    @compiled
    def pass_rows(
        ids: Any,
        texts: Any,
        entry: Any,
        blocks: Any,
        space: Any,
        barrier: Any,
        until: int,
        leads: bool,
        out: Any,
    ) -> int:
        """The part of one thread: of the leader, which writes `out` (rows, size), or of one that
        was invited, from the block on at which it comes. Gives how many took part in the last one;
        0 if the leader had to dismiss the others, who may still write to `space`. The leader begins
        no block that would end after the moment `until`, if it takes as long as those before it: it
        gives the number of those that were done, below zero."""
        _ = sources
        counters = pointer(barrier)
        number, block = (np.int64(0), np.int64(0)) if leads else join(counters)
        last = len(blocks.plan) - 1
        late = not leads and block > last
        if late or (block and not begun(counters, block)):
            return 0
        count, size = out.shape
        width, shares = space.x.shape[2], space.sums.shape[1]
        before = flush_denormals()
        begin(pointer(space.rows), count)
        x = offset(pointer(space.x), number * space.x.shape[1] * width)
        rows = offset(pointer(space.rows), number * space.x.shape[1] * width)
        if block:
            _copy_rows(count * width, pointer(space.x), x, pointer(space.rows), rows)
        else:
            real = offset(pointer(blocks.constants), width)
            _enter_rows(ids, texts, entry, size, width, real, x, rows)
        threads, arrivals, alone, first = np.int64(1), np.int64(0), False, clock()
        while block <= last:
            turn = 2 if alone else block % 2
            share, began, threads = number, clock(), np.int64(alone)
            if leads and not alone:
                begin_step(counters, block)
            while share < shares:
                _work_on_share(blocks, block, share, count, texts, width, number, space, turn)
                if not threads and leads:
                    threads, arrivals = admit(counters, block, arrivals)
                elif not threads:
                    threads, arrivals = admitted(counters, block)
                share += threads or shares
            arrive(counters)
            if not leads:
                # What comes out is for the leader alone.
                if block == last or not threads or not goes_on(counters, arrivals):
                    break
            # Alone, each block that is left would take as much longer: a quarter of that is risked.
            elif not alone and not all_came(
                counters, arrivals, (clock() - began) * max(1, (last - block) // 4)
            ):
                alone = True
                continue  # this block once more
            elif block < last and clock() + (clock() - first) // (block + 1) >= until:
                dismiss(counters)
                break
            _add_and_norm(blocks, block, count, size, width, number, space, turn)
            block += 1
        end(pointer(space.rows))
        restore_denormals(before)
        if leads and block <= last:
            return int(-block - 1)
        if leads:
            for row in range(count):
                for column in range(size):
                    store_one(pointer(out), row * size + column, x[row * width + column])
        return 0 if alone else int(threads)

    return pass_rows


_PARTS = (
    amx, attention, barrier, cpu, row_blocks, row_integers, row_products, row_steps, simd, simd_math
)  # fmt: skip

pass_rows = _compiled(*written(*_PARTS))
