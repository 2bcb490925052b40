"""A work queue: a few threads that compute, and a short queue before them.

A budget counts from a request's arrival, so waiting eats it. Four rules keep it under load. While
others wait, a request takes only its share of the time it has left: searches get less deep before
any is refused. When all places are taken, no more are let in. One that could not begin in time is
refused at once, when its client can still do something else. And one whose time is over when its
turn comes after all is dropped: nobody waits for it any more.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from glassrank.deadline import Clock, Deadline, now
from glassrank.ranking.planner import Load
from glassrank.serve.refusals import RefusedError

Result = TypeVar("Result")


class WorkQueue:
    """Threads of its own, and places for those who wait."""

    def __init__(self, name: str, threads: int, longest: int, clock: Clock = now) -> None:
        self.name = name
        self.threads = threads
        self.longest = longest
        self.load = Load(threads, clock)
        self.refused: Callable[[str], None] = lambda reason: None
        """Is told why, each time."""
        self.waits: Callable[[int], None] = lambda count: None
        """Is told how many wait, whenever that changes."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._inside = 0
        self._jobs: set[Future[Any]] = set()

    def enter(self) -> bool:
        """Takes a place, if there is one: at a thread, or in the queue."""
        with self._lock:
            if self._inside >= self.threads + self.longest:
                self.refused("full")
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        """Gives a place back that `enter` took."""
        with self._lock:
            self._inside -= 1

    def submit(
        self, work: Callable[[Deadline], Result], deadline: Deadline, needs_ms: float = 0.0
    ) -> Future[Result]:
        """`work` is called with the moment by which it must be done; `needs_ms` is the least that
        is of any use to it."""
        with self._lock:
            expected = self.load.expected_wait()
            # With nothing to wait for, no time to come would be better than now.
            if expected > 0 and expected + needs_ms > deadline.left():
                why = "others that wait would use up this budget"
                raise self._refusal("no_time", why, expected)
            self._wait(1)
        # One that had to wait has no use for less time than it needs.
        needs_ms = needs_ms if expected > 0 else 0.0
        job = self._pool.submit(self._run, work, deadline, needs_ms)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    def close(self, seconds: float) -> bool:
        """Ends when everything that was submitted is done, or after so many seconds: what has not
        begun by then never does. True if all is done."""
        self._pool.shutdown(wait=False)
        late = wait(list(self._jobs), seconds).not_done
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not late

    def _run(
        self, work: Callable[[Deadline], Result], deadline: Deadline, needs_ms: float
    ) -> Result:
        with self._lock:
            self._wait(-1)
            share = self.load.begin()
        done = False
        try:
            if deadline.left() <= needs_ms:
                raise self._refusal("too_late", "this budget was used up by waiting", 0.0)
            result = work(deadline.share(share))
            done = True
            return result
        finally:
            with self._lock:
                self.load.end(done=done)

    def _wait(self, change: int) -> None:
        self.load.waiting += change
        self.waits(self.load.waiting)

    def _refusal(self, reason: str, why: str, wait_ms: float) -> RefusedError:
        self.refused(reason)
        return RefusedError(503, f"{why}; come again later, or with a larger budget", wait_ms)
