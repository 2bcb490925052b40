"""A thread pool, and how many threads computations use. Waking a pool's thread takes less than half
the time of starting one."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_set: dict[str, int] = {}
_own = threading.local()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, "glassrank")


def run_parallel(work: Callable[[int], None], count: int) -> None:
    """Runs `work(0)` to `work(count - 1)` in parallel, the first of them in this thread, and waits
    for all. If one of them raises an exception, it is raised here after that."""
    if count == 1:
        work(0)
        return
    others = [_pool().submit(work, number) for number in range(1, count)]
    try:
        work(0)
    finally:
        failed = [other.exception() for other in others]
    for error in filter(None, failed):
        raise error


def num_threads() -> int:
    """How many threads this thread may compute with: PyTorch's number where it is imported, else
    what `set_threads` or `OMP_NUM_THREADS` says, else one for each processor."""
    torch = _torch()
    if torch is not None:
        return int(torch.get_num_threads())
    return getattr(_own, "count", None) or _set.get("count") or _env_threads() or num_processors()


def set_threads(count: int) -> None:
    """Sets it for this thread and all that start later; for PyTorch too, once it is imported."""
    _set["count"] = count
    apply_threads_to_torch()


def apply_threads_to_torch() -> None:
    """Passes the number of `set_threads` on to PyTorch, which may have been imported later."""
    torch = _torch()
    if torch is not None and "count" in _set:
        torch.set_num_threads(_set["count"])


@contextmanager
def single_thread() -> Iterator[None]:
    """PyTorch and this package compute in this thread alone."""
    threads = num_threads()
    _set_own_threads(1)
    try:
        yield
    finally:
        _set_own_threads(threads)


def map_parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Calls `work`, which computes with tensors or arrays, for each item in parallel. PyTorch's own
    thread pool is not used meanwhile: each of its threads keeps a processor busy for some
    milliseconds after its last step."""
    made: dict[int, Result] = {}

    def alone(number: int) -> None:
        _set_own_threads(1)
        torch = _torch()
        with nullcontext() if torch is None else torch.no_grad():
            made[number] = work(items[number])

    with single_thread():
        run_parallel(alone, len(items))
    return [made[number] for number in range(len(items))]


def _torch() -> Any:
    """PyTorch, if it is imported: ranking may not need it."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_num_threads") else None  # not while it is being imported


def _set_own_threads(count: int) -> None:
    _own.count = count
    torch = _torch()
    if torch is not None:
        torch.set_num_threads(count)


def num_processors() -> int:
    """Processors that this process may use, where the system says so, else all."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def _env_threads() -> int:
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdecimal() else 0


# A forked process has no threads but the one that forked: it starts its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
