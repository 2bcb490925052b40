"""A work queue: a few threads that compute, and a short queue before them.

A budget counts from a request's arrival, so waiting eats it. Four rules keep it under load. While
others wait, a request takes only its share of the time, and at least what it needs: searches get
less deep before any is refused. When all places are taken, no more are let in. One that could not
begin in time, even if all before it took no more than they need, is refused at once, when its
client can still do something else. And one whose time is over when its turn comes after all is
dropped if others behind it would be late for it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from glassrank.deadline import Clock, Deadline, now
from glassrank.ranking.planner import Load, Turn
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
        self, work: Callable[[Deadline], Result], deadline: Deadline, needs_ms: float | None = None
    ) -> Future[Result]:
        """`work` is called with the moment by which it must be done; `needs_ms` is the least that
        is of any use to it, where that is known."""
        with self._lock:
            turn = self.load.turn(deadline, needs_ms)
            expected = self.load.expected_wait()
            # With nothing to wait for, no time to come would be better than now.
            if expected > 0 and expected + turn.needs_ms > deadline.left():
                why = "others that wait would use up this budget"
                raise self._refusal("no_time", why, expected)
            self.load.wait(turn)
            self.waits(len(self.load.waiting))
        job = self._pool.submit(self._run, work, turn)
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

    def _run(self, work: Callable[[Deadline], Result], turn: Turn) -> Result:
        with self._lock:
            deadline = self.load.begin(turn)
            in_vain = self.load.is_in_vain(turn)
            self.waits(len(self.load.waiting))
        done = False
        try:
            if in_vain:
                raise self._refusal("too_late", "this budget was used up by waiting", 0.0)
            result = work(deadline)
            done = True
            return result
        finally:
            with self._lock:
                self.load.end(turn, done=done)

    def _refusal(self, reason: str, why: str, wait_ms: float) -> RefusedError:
        self.refused(reason)
        return RefusedError(503, f"{why}; come again later, or with a larger budget", wait_ms)
