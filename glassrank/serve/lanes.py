"""A lane: a few threads that compute, and a short queue before them.

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
from glassrank.serve.refusals import RefusedError

Result = TypeVar("Result")

_NEW = 0.1
"""How much the newest request says about how long they take."""
_TRUSTED = 4.0


class Lane:
    def __init__(self, name: str, threads: int, longest: int, clock: Clock = now) -> None:
        self.name = name
        self.threads = threads
        self.longest = longest
        self.usual_ms = 0.0
        """How long a request has lately taken, once it began."""
        self.refused: Callable[[str], None] = lambda reason: None
        """Is told why, each time."""
        self.waits: Callable[[int], None] = lambda count: None
        """Is told how many wait, whenever that changes."""
        self._clock = clock
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._inside = 0
        self._waiting = 0
        self._jobs: set[Future[Any]] = set()
        self._began: dict[int, float] = {}  # thread -> when it began what it is at

    def enter(self) -> bool:
        """Takes a place, if there is one: at a thread, or in the queue."""
        with self._lock:
            if self._inside >= self.threads + self.longest:
                self.refused("full")
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1

    def submit(
        self, work: Callable[[Deadline], Result], deadline: Deadline, needs_ms: float = 0.0
    ) -> Future[Result]:
        """`work` is called with the moment by which it must be done; `needs_ms` is the least that
        is of any use to it."""
        with self._lock:
            expected = self._expected_wait()
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
        began = self._clock()
        with self._lock:
            self._wait(-1)
            self._began[threading.get_ident()] = began
            sharers = 1 + self._waiting / self.threads
        try:
            left = deadline.left()
            if left <= needs_ms:
                raise self._refusal("too_late", "this budget was used up by waiting", 0.0)
            done = work(deadline.earlier(left - left / sharers))
            with self._lock:
                self._learn(self._clock() - began)
            return done
        finally:
            with self._lock:
                del self._began[threading.get_ident()]

    def _learn(self, took: float) -> None:
        """One long pause of the machine says little about the requests to come."""
        if self.usual_ms:
            took = min(took, _TRUSTED * self.usual_ms)
        self.usual_ms += (_NEW if self.usual_ms else 1.0) * (took - self.usual_ms)

    def _wait(self, change: int) -> None:
        self._waiting += change
        self.waits(self._waiting)

    def _expected_wait(self) -> float:
        if len(self._began) + self._waiting < self.threads:
            return 0.0
        # One that takes longer than usual may end at any moment, or not: half as long again.
        at = self._clock()
        running = sum(
            max(self.usual_ms - (at - began), self.usual_ms / 2) for began in self._began.values()
        )
        return (running + self._waiting * self.usual_ms) / self.threads

    def _refusal(self, reason: str, why: str, wait_ms: float) -> RefusedError:
        self.refused(reason)
        return RefusedError(503, f"{why}; come again later, or with a larger budget", wait_ms)
