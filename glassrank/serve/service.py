"""What every request is answered with: the open index, counts, and a few threads that compute, with
a short queue before them.

A budget counts from a request's arrival, so waiting eats it. Four rules keep it under load. While
others wait, a request takes only its share of the time, and at least what it needs: searches get
less deep before any is refused. When all places are taken, no more are let in. One that could not
begin in time, even if all before it took no more than they need, is refused at once, when its
client can still do something else. And one whose time is over when its queued comes after all is
dropped if others behind it would be late for it.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response

from glassrank.deadline import Clock, Deadline, now
from glassrank.rerank.scheduler import Scheduler
from glassrank.serve.admission import AdmissionController, QueuedRequest
from glassrank.serve.error_responses import HttpError
from glassrank.serve.loaded import IndexReloader, LoadedIndex
from glassrank.serve.metrics import Metrics
from glassrank.serve.options import Options

Result = TypeVar("Result")


class WorkQueue:
    """Threads of its own, and places for those who wait."""

    def __init__(self, name: str, threads: int, longest: int, clock: Clock = now) -> None:
        self.name = name
        self.threads = threads
        self.longest = longest
        self.admission = AdmissionController(threads, clock)
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
            queued = self.admission.new_request(deadline, needs_ms)
            expected = self.admission.expected_wait()
            # With nothing to wait for, no time to come would be better than now.
            if expected > 0 and expected + queued.needs_ms > deadline.remaining():
                why = "others that wait would use up this budget"
                raise self._refusal("no_time", why, expected)
            self.admission.enqueue(queued)
            self.waits(len(self.admission.waiting))
        job = self._pool.submit(self._run, work, queued)
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

    def _run(self, work: Callable[[Deadline], Result], queued: QueuedRequest) -> Result:
        with self._lock:
            deadline = self.admission.start(queued)
            is_shed = self.admission.should_shed(queued)
            self.waits(len(self.admission.waiting))
        done = False
        try:
            if is_shed:
                raise self._refusal("too_late", "this budget was used up by waiting", 0.0)
            result = work(deadline)
            done = True
            return result
        finally:
            with self._lock:
                self.admission.finish(queued, succeeded=done)

    def _refusal(self, reason: str, why: str, retry_after_ms: float) -> HttpError:
        self.refused(reason)
        return HttpError(503, f"{why}; come again later, or with a larger budget", retry_after_ms)


_CLOSE_SECONDS = 2.0
"""That are waited for threads when nobody waits for their answers any more."""

_log = logging.getLogger("glassrank.serve")


class Service:
    """What requests share: the index with its models, threads with their queues, the scheduler, the
    counts."""

    def __init__(self, options: Options, reloader: IndexReloader) -> None:
        self.options = options
        self.limits = options.limits
        self.reloader = reloader
        self.metrics = Metrics()
        self.searches = self._queue("search", options.threads)
        # Re-ranking given texts and explaining take long: searches do not wait for them.
        self.texts = self._queue("texts", 1)
        self.scheduler = Scheduler()
        self.closing = False
        self._publish()

    def _queue(self, name: str, threads: int) -> WorkQueue:
        queue = WorkQueue(name, threads, self.options.queue)
        queue.refused = lambda reason: self.metrics.refusals.labels(name, reason).inc()
        queue.waits = self.metrics.queue.labels(name).set
        return queue

    @property
    def loaded(self) -> LoadedIndex:
        """The newest state; who asks twice may be given two."""
        return self.reloader.current

    async def run(
        self,
        request: Request,
        queue: WorkQueue,
        work: Callable[[Deadline], Result],
        budget_ms: float,
        needs_ms: float | None = None,
    ) -> Result:
        """In one of the queue's threads, by the end of a budget that counts from the request's
        arrival to the end of its answer."""
        self.options.on_request()
        state = request.state
        state.budget_ms = budget_ms
        deadline = self.scheduler.response_deadline(state.arrived, budget_ms)

        def timed(deadline: Deadline) -> Result:
            try:
                return work(deadline.or_thread_time(self.options.work_ms))
            finally:
                state.done = now()

        return await asyncio.wrap_future(queue.submit(timed, deadline, needs_ms))

    def sent(self, took: float) -> None:
        """An answer that was ready has been sent so many milliseconds later."""
        self.scheduler.learn("sending", 1, took)

    @contextmanager
    def running(self, stuck: Callable[[], None]) -> Iterator[None]:
        """Follows the index; at the end, waits for what is being computed, but not for long:
        `stuck` is called if something is computed still."""
        stop = threading.Event()

        def follow() -> None:
            while not stop.wait(self.options.refresh_seconds):
                try:
                    self.reloader.refresh()
                    self._publish()
                except Exception:  # whatever it is, what is served is not touched by it
                    _log.exception("looking for changes of the index failed")

        thread = threading.Thread(target=follow, name="refresh", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.closing = True
            stop.set()
            thread.join(_CLOSE_SECONDS)
            closed = [queue.close(_CLOSE_SECONDS) for queue in (self.searches, self.texts)]
            if not all(closed):
                _log.error("a request is computed still, and is given up")
                stuck()

    def _publish(self) -> None:
        index = self.loaded.index
        self.metrics.generation.set(index.generation)
        self.metrics.documents.set(len(index))
        self.metrics.behind.set(bool(self.reloader.behind))


def to_bytes(value: Any) -> bytes:
    """Half a surrogate pair, which JSON can carry but UTF-8 cannot, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def json_response(body: bytes) -> Response:
    """JSON that is written already."""
    return Response(body, media_type="application/json")
