"""Threads that meet in the middle of compiled work, and do not wait for one that is not running.

One thread leads, others are invited. Whoever is there when the leader has done its first piece
takes part; the door is closed to those who come later, since a busy machine may wake them long
after the work is done. Between steps all who take part wait for each other: the others ask a
counter for some microseconds, then let other threads run before each further question; the leader
asks for a while, and then dismisses the others and goes on alone, since a busy machine may also
take a processor away from one of them for milliseconds.

A `meeting` is a fresh array of zeros for each piece of work: `counters()`. Functions here, except
`counters`, work inside functions compiled by numba, and nowhere else.
"""

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numpy.typing import NDArray

from glassrank.nn.cpu.simd import intrinsic, named, on_x86

_DOOR, _TAKING_PART, _ARRIVED = 0, 8, 16
"""Each counter has a line of the cache to itself."""
_CLOSED = _DISMISSED = 1 << 32
_QUESTIONS = 500
"""Of others, before someone else may run: about 20 microseconds."""
_PATIENCE = 2000
"""Questions of the leader before it goes on without those who did not come: about 100."""


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
def _ask(typing: Any, counter: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(builder.gep(args[0], [args[1]]), "seq_cst", 8)

    return types.int64(counter, types.intp), generate


def _call(emit: Callable[[Any, Any], None]) -> Callable[..., Any]:
    @intrinsic
    def operation(typing: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            emit(context, builder)
            return context.get_dummy_value()

        return types.void(), generate

    made: Callable[..., Any] = operation
    return made


def _emit_pause(context: Any, builder: Any) -> None:
    if on_x86(context):
        named(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])


def _emit_let_others_run(context: Any, builder: Any) -> None:
    if platform.system() != "Windows":
        named(builder, "sched_yield", ir.IntType(32), [])


_pause, _let_others_run = _call(_emit_pause), _call(_emit_let_others_run)


@njit
def enter(meeting: Any) -> Any:
    """For those who were invited: a number from 1 on, or 0 if the door is closed."""
    ticket = _add(meeting, _DOOR, 1)
    return 0 if ticket >= _CLOSED else ticket + 1


@njit
def close_door(meeting: Any, invited: int) -> Any:
    """For the leader: how many take part, itself included."""
    _wait_some_time(meeting, _DOOR, invited)
    count = _add(meeting, _DOOR, _CLOSED) + 1
    _add(meeting, _TAKING_PART, count)
    return count


@njit
def taking_part(meeting: Any) -> Any:
    """For the others, who wait until the leader has closed the door."""
    _wait(meeting, _TAKING_PART, 1)
    return _ask(meeting, _TAKING_PART)


@njit
def arrive(meeting: Any) -> None:
    """Says that this thread has done its share of a step."""
    _add(meeting, _ARRIVED, 1)


@njit
def all_came(meeting: Any, arrivals: int) -> bool:
    """For the leader: whether there were so many arrivals in time. If not, the others are
    dismissed: whatever they still write, nobody may read."""
    if _wait_some_time(meeting, _ARRIVED, arrivals):
        return True
    _add(meeting, _ARRIVED, _DISMISSED)
    return False


@njit
def goes_on(meeting: Any, arrivals: int) -> Any:
    """For the others: waits for so many arrivals; false if they are dismissed."""
    _wait(meeting, _ARRIVED, arrivals)
    return _ask(meeting, _ARRIVED) < _DISMISSED


@njit
def _wait_some_time(meeting: Any, counter: int, value: int) -> bool:
    for _ in range(_PATIENCE):
        if _ask(meeting, counter) >= value:
            return True
        _pause()
    return False


@njit
def _wait(meeting: Any, counter: int, value: int) -> None:
    questions = 0
    while _ask(meeting, counter) < value:
        questions += 1
        if questions < _QUESTIONS:
            _pause()
        else:
            _let_others_run()
