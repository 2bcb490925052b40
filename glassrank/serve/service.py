"""What every request is answered with: the open index, threads, counts."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response

from glassrank.deadline import Deadline, now
from glassrank.ranking.planner import Planner
from glassrank.serve.metrics import Metrics
from glassrank.serve.opened import Opened, Served
from glassrank.serve.options import Options
from glassrank.serve.work_queue import WorkQueue

Result = TypeVar("Result")

_CLOSE_SECONDS = 2.0
"""That are waited for threads when nobody waits for their answers any more."""

_log = logging.getLogger("glassrank.serve")


class Service:
    """What requests share: the index with its models, threads with their queues, the planner, the
    counts."""

    def __init__(self, options: Options, served: Served) -> None:
        self.options = options
        self.limits = options.limits
        self.served = served
        self.metrics = Metrics()
        self.searches = self._queue("search", options.threads)
        # Re-ranking given texts and explaining take long: searches do not wait for them.
        self.texts = self._queue("texts", 1)
        self.planner = Planner()
        self.closing = False
        self._publish()

    def _queue(self, name: str, threads: int) -> WorkQueue:
        queue = WorkQueue(name, threads, self.options.queue)
        queue.refused = lambda reason: self.metrics.refusals.labels(name, reason).inc()
        queue.waits = self.metrics.queue.labels(name).set
        return queue

    @property
    def opened(self) -> Opened:
        """The newest state; who asks twice may be given two."""
        return self.served.now

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
        state = request.state
        state.budget_ms = budget_ms
        deadline = self.planner.answer_by(state.arrived, budget_ms)

        def timed(deadline: Deadline) -> Result:
            try:
                return work(deadline.or_computed(self.options.work_ms))
            finally:
                state.done = now()

        return await asyncio.wrap_future(queue.submit(timed, deadline, needs_ms))

    def sent(self, took: float) -> None:
        """An answer that was ready has been sent so many milliseconds later."""
        self.planner.learn("sending", 1, took)

    @contextmanager
    def running(self, stuck: Callable[[], None]) -> Iterator[None]:
        """Follows the index; at the end, waits for what is being computed, but not for long:
        `stuck` is called if something is computed still."""
        stop = threading.Event()

        def follow() -> None:
            while not stop.wait(self.options.refresh_seconds):
                try:
                    self.served.refresh()
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
        index = self.opened.index
        self.metrics.generation.set(index.generation)
        self.metrics.documents.set(len(index))
        self.metrics.behind.set(bool(self.served.behind))


def to_bytes(value: Any) -> bytes:
    """Half a surrogate pair, which JSON can carry but UTF-8 cannot, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def json_response(body: bytes) -> Response:
    """JSON that is written already."""
    return Response(body, media_type="application/json")
