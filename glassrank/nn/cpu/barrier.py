"""A barrier for threads inside compiled code that never waits long for one that is not running.

One thread leads, others from the thread pool may join at any time: a busy machine wakes them late.
The work has steps. When the leader has done its first share of a step, it admits all who have come:
they have taken shares of this step, or wait for the next. After each step all who take part wait
for each other: the others look at a counter for some microseconds, and then let other threads run
between two looks; the leader looks for a while, and then dismisses the others and goes on alone,
since a busy machine may also take the processor from one of them for milliseconds.

A `barrier` is a fresh array of zeros for each piece of work: `counters()`. Functions here, except
`counters`, work inside functions compiled by numba, and nowhere else.
"""

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numpy.typing import NDArray

from glassrank.nn.cpu import architecture
from glassrank.nn.cpu.simd import intrinsic, named

_JOINED, _PROGRESS, _ARRIVED = 0, 8, 16
"""Each counter has a line of the cache to itself. Progress is twice the step, and one more when it
is begun, two when threads are admitted to it; behind it stand all arrivals that this step ends
with, and the number of those who take part."""
_STEP, _ARRIVALS, _FEW = 1 << 32, 1 << 8, (1 << 8) - 1
_DISMISSED = 1 << 60  # room for it to be said twice
_SHORT_LOOKS = architecture() == "aarch64"
"""Whether a look takes 15 nanoseconds, and not 50."""
_LOOKS = 1300 if _SHORT_LOOKS else 500
"""At a counter before others may run: about 20 microseconds."""
_PATIENCE = 6500 if _SHORT_LOOKS else 2000
"""Looks of the leader, at least, before it goes on without the others: about 100 microseconds."""
_LONGEST = 2_000_000
"""Nanoseconds that it waits at most: its own work, by which that goes, may have been held up."""
_WHOLE_SYSTEM = 15


def counters() -> NDArray[np.int64]:
    """For one piece of work."""
    return np.zeros(24, np.int64)


@intrinsic
def _add(typing: Any, counter: Any, at: Any, value: Any) -> Any:
    """Adds to a counter that several threads change; gives what it was before."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.gep(args[0], [args[1]])
        return builder.atomic_rmw("add", place, args[2], "seq_cst")

    return types.int64(counter, types.intp, types.int64), generate


@intrinsic
def _read(typing: Any, counter: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(builder.gep(args[0], [args[1]]), "seq_cst", 8)

    return types.int64(counter, types.intp), generate


@intrinsic
def _write(typing: Any, counter: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[2], builder.gep(args[0], [args[1]]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(counter, types.intp, types.int64), generate


def _call(emit: Callable[[Any], None]) -> Callable[..., Any]:
    @intrinsic
    def operation(typing: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            emit(builder)
            return context.get_dummy_value()

        return types.void(), generate

    made: Callable[..., Any] = operation
    return made


def _emit_pause(builder: Any) -> None:
    """For some nanoseconds, so that looking does not slow down whoever is waited for."""
    if architecture() == "x86_64":
        named(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
    elif architecture() == "aarch64":
        # What is called `yield` there takes no time at all; this waits for what is under way.
        named(builder, "llvm.aarch64.isb", ir.VoidType(), [ir.IntType(32)(_WHOLE_SYSTEM)])


def _emit_let_others_run(builder: Any) -> None:
    if platform.system() != "Windows":
        named(builder, "sched_yield", ir.IntType(32), [])


@intrinsic
def clock(typing: Any) -> Any:
    """Nanoseconds; always 0 on Windows, which has another one."""
    kind = ir.IntType(64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if platform.system() == "Windows":
            return kind(0)
        # Once: in a loop, `alloca` takes more of the stack at each turn.
        place = cgutils.alloca_once(builder, kind, size=2)  # type: ignore[no-untyped-call]
        which = ir.IntType(32)(time.CLOCK_MONOTONIC)
        named(builder, "clock_gettime", ir.IntType(32), [which, place])
        seconds = builder.load(place)
        parts = builder.load(builder.gep(place, [ir.IntType(32)(1)]))
        return builder.add(builder.mul(seconds, kind(1_000_000_000)), parts)

    return types.int64(), generate


_pause, _let_others_run = _call(_emit_pause), _call(_emit_let_others_run)


def moment(ms_from_now: float) -> int:
    """By that clock."""
    if platform.system() == "Windows" or ms_from_now == float("inf"):
        return np.iinfo(np.int64).max
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(1e6 * ms_from_now)


@njit
def join(barrier: Any) -> Any:
    """For the others: a number from 1 on, and the step from which on they take part."""
    ticket = _add(barrier, _JOINED, 1)
    return ticket % _STEP + 1, ticket // _STEP


@njit
def begin_step(barrier: Any, step: int) -> None:
    """For the leader: what the step begins with is there for those who are new in it."""
    if step:
        _write(barrier, _PROGRESS, (2 * step + 1) * _STEP)


@njit
def begun(barrier: Any, step: int) -> Any:
    """For those who are new: waits until the step has begun; false if they are dismissed."""
    return _reached(barrier, _PROGRESS, (2 * step + 1) * _STEP) < _DISMISSED


@njit
def admit(barrier: Any, step: int, arrivals: int) -> Any:
    """For the leader: how many take part in this step, itself included, and with how many arrivals
    it ends, if the one before ended with `arrivals`."""
    count = _add(barrier, _JOINED, _STEP) % _STEP + 1
    arrivals += count
    _write(barrier, _PROGRESS, (2 * step + 2) * _STEP + arrivals * _ARRIVALS + count)
    return count, arrivals


@njit
def admitted(barrier: Any, step: int) -> Any:
    """For the others: waits for the same; 0 of them if they are dismissed."""
    found = _reached(barrier, _PROGRESS, (2 * step + 2) * _STEP)
    return 0 if found >= _DISMISSED else found & _FEW, found % _STEP // _ARRIVALS


@njit
def arrive(barrier: Any) -> None:
    """Says that this thread has done its share of a step."""
    _add(barrier, _ARRIVED, 1)


@njit
def all_came(barrier: Any, arrivals: int, patience: int) -> bool:
    """For the leader: whether there were so many arrivals within so many nanoseconds. If not, the
    others are dismissed: whatever they still write, nobody may read."""
    if _wait_some_time(barrier, _ARRIVED, arrivals, patience):
        return True
    dismiss(barrier)
    return False


@njit
def dismiss(barrier: Any) -> None:
    """For the leader: the others need not go on."""
    _add(barrier, _PROGRESS, _DISMISSED)
    _add(barrier, _ARRIVED, _DISMISSED)


@njit
def goes_on(barrier: Any, arrivals: int) -> Any:
    """For the others: waits for so many arrivals; false if they are dismissed."""
    return _reached(barrier, _ARRIVED, arrivals) < _DISMISSED


@njit
def _wait_some_time(barrier: Any, counter: int, value: int, patience: int) -> bool:
    until, looks = clock() + min(patience, _LONGEST), 0
    while looks < _PATIENCE or clock() < until:
        if _read(barrier, counter) >= value:
            return True
        _pause()
        looks += 1
    return False


@njit
def _reached(barrier: Any, counter: int, value: int) -> Any:
    """Waits until a counter has reached a value; gives where it stands."""
    looks = 0
    found = _read(barrier, counter)
    while found < value:
        looks += 1
        if looks < _LOOKS:
            _pause()
        else:
            _let_others_run()
        found = _read(barrier, counter)
    return found
