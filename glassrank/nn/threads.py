"""A thread pool: to wake one of its threads takes less than half the time of starting one."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_pool: list[ThreadPoolExecutor] = []
_outside = threading.local()


def _threads() -> ThreadPoolExecutor:
    if not _pool:
        _pool.append(ThreadPoolExecutor(os.cpu_count() or 1, "glassrank"))
    return _pool[0]


def together(work: Callable[[int], None], count: int) -> None:
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


def lead(work: Callable[[bool], Result], invited: int) -> Result:
    """Runs `work(True)` in this thread, and `work(False)` in so many threads of the pool as long as
    that takes. Gives the result of the first without waiting for the others, so that the work must
    be done without those that begin late, or not at all."""
    others = [_threads().submit(work, False) for _ in range(invited)]
    try:
        return work(True)
    finally:
        for other in others:
            other.cancel()


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes in this thread alone, without its own thread pool."""
    threads, allowed = torch.get_num_threads(), threads_allowed()
    torch.set_num_threads(1)  # for the thread that says so
    _outside.threads = allowed
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _outside.threads = None if threads == allowed else allowed


def threads_allowed() -> int:
    """PyTorch's number of threads, also where its own steps are kept to one of them."""
    return getattr(_outside, "threads", None) or torch.get_num_threads()


def apart(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`work`, which computes with tensors, for each of these in parallel. PyTorch's own thread
    pool is not used meanwhile: each of its threads keeps a processor busy for some milliseconds
    after its last step, waiting for the next."""
    made: dict[int, Result] = {}

    @torch.no_grad()
    def alone(number: int) -> None:
        torch.set_num_threads(1)  # for the thread that says so
        made[number] = work(items[number])

    with one_thread():
        together(alone, len(items))
    return [made[number] for number in range(len(items))]


# A forked process has no threads but the one that forked: it starts its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.clear)
