"""Threads that wait for work: to wake one takes less than half the time of starting one."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_waiting: list[ThreadPoolExecutor] = []
_outside = threading.local()


def _helpers() -> ThreadPoolExecutor:
    if not _waiting:
        _waiting.append(ThreadPoolExecutor(os.cpu_count() or 1, "glassrank"))
    return _waiting[0]


def together(work: Callable[[int], None], count: int) -> None:
    """`work(0)` to `work(count - 1)` at the same time, the first of them in this thread. What one
    of them raises is raised when all have ended."""
    if count == 1:
        work(0)
        return
    others = [_helpers().submit(work, number) for number in range(1, count)]
    try:
        work(0)
    finally:
        failed = [other.exception() for other in others]
    for error in filter(None, failed):
        raise error


def lead(work: Callable[[bool], Result], invited: int) -> Result:
    """What `work(True)` gives in this thread, with `work(False)` in as many others as come before
    it ends: it waits for none, and must do without those who come late or not at all."""
    others = [_helpers().submit(work, False) for _ in range(invited)]
    try:
        return work(True)
    finally:
        for other in others:
            other.cancel()


@contextmanager
def one_thread() -> Iterator[None]:
    """Steps of PyTorch in this thread alone."""
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
    """What `work` with tensors makes of each of these at the same time. PyTorch's threads, which
    meet after every step, are not used meanwhile: they would get in the way, since each of them
    keeps a processor busy for some milliseconds after its last step."""
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
    os.register_at_fork(after_in_child=_waiting.clear)
