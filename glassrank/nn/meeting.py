"""Threads that meet in the middle of compiled work, and never wait for one that did not come.

One thread leads, others are invited. Whoever is there when the leader has done its first piece takes
part to the end; the door is closed to those who come later, since a busy machine may wake them long
after the work is done. Between steps all who take part wait for each other: they ask a counter for
some microseconds, then let other threads run before each further question.

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

from glassrank.nn.lanes import _on_x86, intrinsic, named

_DOOR, _TAKING_PART, _ARRIVED = 0, 8, 16
"""Each counter has a line of the cache to itself."""
_CLOSED = 1 << 32
_QUESTIONS = 500
"""Before others may run: about 20 microseconds."""
_PATIENCE = 1500
"""Questions of the leader before it closes the door to those who are still on their way."""
_LONG = ir.IntType(64)


def counters() -> NDArray[np.int64]:
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
    if _on_x86(context):
        named(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])


def _emit_let_others_run(context: Any, builder: Any) -> None:
    if platform.system() != "Windows":
        named(builder, "sched_yield", ir.IntType(32), [])


_pause, _let_others_run = _call(_emit_pause), _call(_emit_let_others_run)


@njit
def enter(meeting: Any) -> int:
    """For those who were invited: a number from 1 on, or 0 if the door is closed."""
    ticket = _add(meeting, _DOOR, 1)
    return 0 if ticket >= _CLOSED else ticket + 1


@njit
def close_door(meeting: Any, invited: int) -> int:
    """For the leader: how many take part, itself included."""
    for _ in range(_PATIENCE):
        if _ask(meeting, _DOOR) == invited:
            break
        _pause()
    count = _add(meeting, _DOOR, _CLOSED) + 1
    _add(meeting, _TAKING_PART, count)
    return count


@njit
def taking_part(meeting: Any) -> int:
    """For the others, who wait until the leader has closed the door."""
    _wait(meeting, _TAKING_PART, 1)
    return _ask(meeting, _TAKING_PART)


@njit
def arrive(meeting: Any) -> None:
    _add(meeting, _ARRIVED, 1)


@njit
def wait_for(meeting: Any, arrivals: int) -> None:
    """Until so many arrivals there were in all."""
    _wait(meeting, _ARRIVED, arrivals)


@njit
def _wait(meeting: Any, counter: int, value: int) -> None:
    questions = 0
    while _ask(meeting, counter) < value:
        questions += 1
        if questions < _QUESTIONS:
            _pause()
        else:
            _let_others_run()
