"""Admission control: when a queued request may start, how much time it gets, and which are shed.

Every queued request keeps at least the time that it needs, and the rest is shared evenly. So
searches get less deep under load, down to the first stage alone, before any is refused; and a
request that already runs gets less deep, too, when others arrive.
"""

from glassrank.deadline import Clock, Deadline, now
from glassrank.rerank.scheduler import TRUSTED

_SHARED = 0.7
"""Share of the spare time that is handed out while requests wait: a late one delays all others."""
_MAX_NEEDED = 1 / 3
"""Of its time, the most that a request can be said to need."""
_SMOOTHING = 0.1
"""Weight of the newest request in the moving average of durations."""


class QueuedRequest:
    """A request that waits for a thread, or runs in one."""

    def __init__(self, deadline: Deadline, needs_ms: float) -> None:
        self.deadline = deadline
        self.needs_ms = needs_ms
        """The least time that is of any use to it."""
        self.started_at = 0.0
        self.must_end_at = deadline.at
        """By when it must end, for the queue `shared_with`."""
        self.shared_with: tuple[QueuedRequest, ...] = ()


class AdmissionController:
    """The queue before some threads: expected waits, and the time that each request may take."""

    def __init__(self, threads: int, clock: Clock = now) -> None:
        self.threads = threads
        self.clock = clock
        self.mean_ms = 0.0
        """Moving average of how long requests run: what one needs of which no more is known."""
        # Replaced as a whole: running threads read it without a lock.
        self.waiting: tuple[QueuedRequest, ...] = ()
        self._running: set[QueuedRequest] = set()

    @property
    def count(self) -> int:
        """Requests that run or wait."""
        return len(self._running) + len(self.waiting)

    def new_request(self, deadline: Deadline, needs_ms: float | None) -> QueuedRequest:
        """A request that is not in the queue yet."""
        needs_ms = self.mean_ms if needs_ms is None else needs_ms
        # A need that takes up nearly all of the budget is not believed: such a request would be
        # refused as soon as there is another, and a better estimate would never be learned.
        return QueuedRequest(deadline, min(needs_ms, _MAX_NEEDED * max(0.0, deadline.remaining())))

    def expected_wait(self) -> float:
        """Milliseconds until a thread is likely to be free, if each request takes what it needs."""
        if self.count < self.threads:
            return 0.0
        at = self.clock()
        # A request that has had what it needs ends soon, but not at once.
        running = sum(
            max(request.needs_ms - (at - request.started_at), request.needs_ms / 2)
            for request in self._running
        )
        return (running + sum(request.needs_ms for request in self.waiting)) / self.threads

    def enqueue(self, request: QueuedRequest) -> None:
        """Adds it at the end of the queue."""
        self.waiting = (*self.waiting, request)

    def start(self, request: QueuedRequest) -> Deadline:
        """Moves it from the queue to a thread. Its deadline gets earlier when others arrive."""
        self.waiting = tuple(other for other in self.waiting if other is not request)
        request.started_at = self.clock()
        self._running.add(request)
        whole = request.deadline
        return Deadline(lambda: whole.clock() + whole.at - self._end_of(request), whole.at)

    def _end_of(self, request: QueuedRequest) -> float:
        waiting = self.waiting
        if request.shared_with is not waiting:
            request.shared_with = waiting
            earliest = request.started_at + request.needs_ms
            end, needed = request.deadline.at, 0.0
            for place, other in enumerate(waiting, 1):
                needed += other.needs_ms / self.threads
                spare = _SHARED * max(0.0, other.deadline.at - earliest - needed)
                end = min(end, earliest + spare / (1 + place / self.threads))
            request.must_end_at = end
        return request.must_end_at

    def should_shed(self, request: QueuedRequest) -> bool:
        """Whether its time is over, and it would make requests late that are not late yet. Where
        all are late, as after a pause of the machine, shedding helps nobody."""
        if not request.deadline.has_passed():
            return False
        needed = request.needs_ms
        for other in self.waiting:
            needed += other.needs_ms
            if 0 < other.deadline.remaining() < needed / self.threads:
                return True
        return False

    def finish(self, request: QueuedRequest, *, succeeded: bool) -> None:
        """Takes it from its thread. The duration of a failed request is not learned."""
        self._running.discard(request)
        if succeeded:
            took = self.clock() - request.started_at
            took = min(took, TRUSTED * self.mean_ms) if self.mean_ms else took
            self.mean_ms += (_SMOOTHING if self.mean_ms else 1.0) * (took - self.mean_ms)
