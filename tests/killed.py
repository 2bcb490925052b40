"""Work that is killed, in a child that was forked: it needs no start of its own. Nothing else may
run in the process that forks. And work on a disk with little room."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Work = Callable[[], object]


def killed(work: Work, seconds: float | None = None) -> bool:
    """Whether the work was still going on when its process was killed, by us after so many seconds
    or by itself."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"the work failed: {status}"
    return status == signal.SIGKILL


def dies_at(number: int, work: Work, *calls: tuple[object, str]) -> Work:
    """Work that kills its own process at the n-th call of any of these functions."""

    def dying() -> None:
        left = iter(range(1, number))

        def counted(call: Callable[..., object]) -> Callable[..., object]:
            def counting(*arguments: object, **named: object) -> object:
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments, **named)

            return counting

        for owner, name in calls:
            setattr(owner, name, counted(getattr(owner, name)))
        work()

    return dying


def dies_at_sync(number: int, work: Work) -> Work:
    """Work that kills its own process at the n-th time it makes something durable."""

    def dying() -> None:
        os.fsync = lambda handle: None  # a killed process loses nothing, only a power cut would
        dies_at(number, work, (os, "fsync"))()

    return dying


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes."""
    import resource  # Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
