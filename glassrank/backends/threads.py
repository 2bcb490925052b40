"""A thread pool: to wake one of its threads takes less than half the time of starting one."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from glassrank.deadline import Deadline, ending, must_end

Item = TypeVar("Item")
Result = TypeVar("Result")

_pool: list[ThreadPoolExecutor] = []
_set: dict[str, int] = {}
_own = threading.local()


def _threads() -> ThreadPoolExecutor:
    if not _pool:
        _pool.append(ThreadPoolExecutor(os.cpu_count() or 1, "glassrank"))
    return _pool[0]


def run_parallel(work: Callable[[int], None], count: int) -> None:
    """Runs `work(0)` to `work(count - 1)` in parallel, the first of them in this thread, and waits
    for all. If one of them raises an exception, it is raised here after that."""
    if count == 1:
        work(0)
        return
    others = [_threads().submit(work, number) for number in range(1, count)]
    try:
        work(0)
    finally:
        failed = [other.exception() for other in others]
    for error in filter(None, failed):
        raise error


def num_threads() -> int:
    """How many threads this one may compute with: PyTorch's number where it is imported, else as
    many as there are processors, `OMP_NUM_THREADS` says, or `set_threads` was told."""
    torch = _torch()
    if torch is not None:
        return int(torch.get_num_threads())
    return getattr(_own, "count", None) or _set.get("count") or _threads_told() or num_processors()


def set_threads(count: int) -> None:
    """For all threads that begin from now on, and for this one; PyTorch's too, once it is there."""
    _set["count"] = count
    apply_threads_to_torch()


def apply_threads_to_torch() -> None:
    """Tells PyTorch what `set_threads` was told before it was imported."""
    torch = _torch()
    if torch is not None and "count" in _set:
        torch.set_num_threads(_set["count"])


@contextmanager
def single_thread() -> Iterator[None]:
    """What computes with several threads, PyTorch above all, computes in this thread alone."""
    threads = num_threads()
    _give_thread(1)
    try:
        yield
    finally:
        _give_thread(threads)


def map_parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`work`, which computes with tensors or arrays, for each of these in parallel. PyTorch's own
    thread pool is not used meanwhile: each of its threads keeps a processor busy for some
    milliseconds after its last step, waiting for the next."""
    made: dict[int, Result] = {}
    deadline = Deadline.after(must_end().remaining())  # its clock may be this thread's own

    def alone(number: int) -> None:
        _give_thread(1)
        torch = _torch()
        with ending(deadline), nullcontext() if torch is None else torch.no_grad():
            made[number] = work(items[number])

    with single_thread():
        run_parallel(alone, len(items))
    return [made[number] for number in range(len(items))]


def _torch() -> Any:
    """PyTorch, if somebody has imported it: nobody has to, in order to rank."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_num_threads") else None  # not while it is being imported


def _give_thread(count: int) -> None:
    """To the thread that says so."""
    _own.count = count
    torch = _torch()
    if torch is not None:
        torch.set_num_threads(count)


def num_processors() -> int:
    """As many as this process may use, where the system tells, else all."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def _threads_told() -> int:
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() else 0


# A forked process has no threads but the one that forked: it starts its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.clear)
