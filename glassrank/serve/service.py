"""What requests share: the loaded index, metrics, and a few threads with a short queue.

A budget counts from a request's arrival, so waiting uses it up. Four rules keep the service within
budgets under load. While others wait, a request gets a share of the time, and at least what it
needs: searches get less deep before any is refused. A full queue refuses requests at once. A
request that could not begin in time, even if all before it took as little as they need, is refused
at once, while its client can still do something else. And a request whose time is over when its
turn comes is dropped if requests behind it would be late because of it.
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
from glassrank.serve.interleaving import Interleaving
from glassrank.serve.loaded import IndexReloader, LoadedIndex
from glassrank.serve.metrics import Metrics
from glassrank.serve.options import Options
from glassrank.serve.query_log import QueryLog

Result = TypeVar("Result")


class WorkQueue:
    """Threads, and places for requests that wait for them."""

    def __init__(self, name: str, threads: int, longest: int, clock: Clock = now) -> None:
        self.admission = AdmissionController(threads, clock)
        self.on_shed: Callable[[str], None] = lambda reason: None
        """Called with the reason whenever a request is refused."""
        self.on_wait: Callable[[int], None] = lambda count: None
        """Called with the length of the queue whenever it changes."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._places = threads + longest
        self._inside = 0
        self._jobs: set[Future[Any]] = set()

    def enter(self) -> bool:
        """Takes a place at a thread or in the queue; False if there is none."""
        with self._lock:
            if self._inside >= self._places:
                self.on_shed("full")
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        """Returns the place that `enter` took."""
        with self._lock:
            self._inside -= 1

    def submit(
        self, work: Callable[[Deadline], Result], deadline: Deadline, needs_ms: float | None = None
    ) -> Future[Result]:
        """Calls `work` in a thread; `needs_ms` is the least time that is of use, if known."""
        with self._lock:
            queued = self.admission.new_request(deadline, needs_ms)
            expected = self.admission.expected_wait()
            # With nothing to wait for, no later time would be better than now.
            if expected > 0 and expected + queued.needs_ms > deadline.remaining():
                why = "requests that wait would use up this budget"
                raise self._shed("no_time", why, expected)
            self.admission.enqueue(queued)
            self.on_wait(len(self.admission.waiting))
        job = self._pool.submit(self._run, work, queued)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    def close(self, seconds: float) -> bool:
        """Waits for all work, at most `seconds`; True if it is done. The rest never begins."""
        self._pool.shutdown(wait=False)
        late = wait(list(self._jobs), seconds).not_done
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not late

    def _run(self, work: Callable[[Deadline], Result], queued: QueuedRequest) -> Result:
        with self._lock:
            deadline = self.admission.start(queued)
            is_shed = self.admission.should_shed(queued)
            self.on_wait(len(self.admission.waiting))
        done = False
        try:
            if is_shed:
                raise self._shed("too_late", "waiting used up this budget", 0.0)
            result = work(deadline)
            done = True
            return result
        finally:
            with self._lock:
                self.admission.finish(queued, succeeded=done)

    def _shed(self, reason: str, why: str, retry_after_ms: float) -> HttpError:
        self.on_shed(reason)
        return HttpError(503, f"{why}; try again later, or with a larger budget", retry_after_ms)


_CLOSE_SECONDS = 2.0
"""How long the service waits for its threads when it closes."""

_log = logging.getLogger("glassrank.serve")


class Service:
    """The index with its models, the queues, the scheduler, and the metrics."""

    def __init__(self, options: Options, reloader: IndexReloader) -> None:
        self.options = options
        self.limits = options.limits
        self.reloader = reloader
        self.metrics = Metrics()
        self.searches = self._queue("search", options.threads)
        # Re-ranking texts and explaining take long: searches must not wait for them.
        self.texts = self._queue("texts", 1)
        self.scheduler = Scheduler()
        self.query_log = None if options.log is None else QueryLog(options.log, self.limits)
        self.interleaving: Interleaving | None = None
        if options.interleave is not None:
            models = next(iter(options.pipelines)), options.interleave
            most_open = self.limits.open_interleavings
            self.interleaving = Interleaving(models, options.interleave_share, most_open)
        self.closing = False
        self._publish()

    def _queue(self, name: str, threads: int) -> WorkQueue:
        queue = WorkQueue(name, threads, self.options.queue)
        queue.on_shed = lambda reason: self.metrics.shed.labels(name, reason).inc()
        queue.on_wait = self.metrics.queue.labels(name).set
        return queue

    @property
    def takes_feedback(self) -> bool:
        """Whether anything is done with clicks."""
        return self.query_log is not None or self.interleaving is not None

    def record_feedback(self, query_id: str, doc_id: str, action: str) -> None:
        """Logs a click or a rating, and counts it for the model whose document it is."""
        if self.query_log is not None:
            self.query_log.write(action, query_id, doc_id=doc_id)
        if self.interleaving is not None and action != "down":
            self.interleaving.click(query_id, doc_id)
            self.metrics.show_interleaving(self.interleaving.state())

    @property
    def loaded(self) -> LoadedIndex:
        """The current state, which may change between two reads."""
        return self.reloader.current

    async def run(
        self,
        request: Request,
        queue: WorkQueue,
        work: Callable[[Deadline], Result],
        budget_ms: float,
        needs_ms: float | None = None,
    ) -> Result:
        """Runs `work` in a thread of the queue; the budget counts from the request's arrival."""
        if self.options.on_request is not None:
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

    @contextmanager
    def run_in_background(self, on_stuck: Callable[[], None]) -> Iterator[None]:
        """Reloads a changed index; at the end waits, and calls `on_stuck` if work is left."""
        stop = threading.Event()

        def follow() -> None:
            while not stop.wait(self.options.refresh_seconds):
                try:
                    self.reloader.refresh()
                    self._publish()
                except Exception:  # whatever it is, the loaded index stays
                    _log.exception("reloading the index failed")

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
                _log.error("a request still runs; the service ends without it")
                on_stuck()

    def _publish(self) -> None:
        index = self.loaded.index
        self.metrics.generation.set(index.generation)
        self.metrics.documents.set(len(index))
        self.metrics.behind.set(bool(self.reloader.behind))


def to_bytes(value: Any) -> bytes:
    """JSON in UTF-8; half a surrogate pair, which UTF-8 cannot encode, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def json_response(body: bytes) -> Response:
    """A response whose body is JSON already."""
    return Response(body, media_type="application/json")
