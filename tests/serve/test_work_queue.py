"""The queue before the threads: bounded, honest about its length, and never late on purpose."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from glassrank.rerank import Deadline
from glassrank.serve.error_responses import HttpError
from glassrank.serve.service import WorkQueue


class SetClock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def queue(clock: SetClock) -> Iterator[WorkQueue]:
    queue = WorkQueue("test", threads=1, longest=2, clock=clock)
    yield queue
    queue.close(30)


@contextmanager
def busy(queue: WorkQueue, clock: SetClock) -> Iterator[None]:
    """Its thread is at work until the end of this."""
    begun, release = threading.Event(), threading.Event()

    def work(deadline: Deadline) -> None:
        begun.set()
        release.wait(30)

    job = queue.submit(work, Deadline.after(1e9, clock))
    assert begun.wait(30)
    try:
        yield
    finally:
        release.set()
        job.result(30)


def test_work_is_done_by_its_deadline(queue: WorkQueue, clock: SetClock) -> None:
    clock.time = 7.0
    assert queue.submit(lambda d: d.remaining(), Deadline.after(50, clock)).result() == 50


def test_no_more_are_let_in_than_there_are_places(queue: WorkQueue) -> None:
    reasons: list[str] = []
    queue.on_shed = reasons.append
    assert [queue.enter() for _ in range(4)] == [True, True, True, False]  # a thread, and two wait
    assert reasons == ["full"]
    queue.leave()
    assert queue.enter() and not queue.enter()


def test_a_wait_that_would_eat_the_budget_is_refused_at_once(
    queue: WorkQueue, clock: SetClock
) -> None:
    queue.admission.mean_ms = 40.0
    with busy(queue, clock):
        clock.time += 10  # of the 40 that such work takes: 30 are to come
        with pytest.raises(HttpError, match="use up this budget") as refused:
            queue.submit(lambda d: None, Deadline.after(29, clock))
        assert refused.value.status == 503 and refused.value.retry_after_ms == pytest.approx(30)
        with pytest.raises(HttpError, match="use up this budget"):
            queue.submit(lambda d: None, Deadline.after(35, clock), needs_ms=6)
        queue.submit(lambda d: None, Deadline.after(35, clock), needs_ms=4)
        with pytest.raises(HttpError, match="use up this budget"):  # now two are before it
            queue.submit(lambda d: None, Deadline.after(39, clock), needs_ms=6)
        queue.submit(lambda d: None, Deadline.after(41, clock), needs_ms=6)


def test_an_idle_queue_takes_the_smallest_budget(queue: WorkQueue, clock: SetClock) -> None:
    queue.admission.mean_ms = 40.0
    done = queue.submit(lambda d: "done", Deadline.after(0.1, clock), needs_ms=5)
    assert done.result(30) == "done"


def test_what_is_late_and_would_make_others_late_is_not_computed(
    queue: WorkQueue, clock: SetClock
) -> None:
    computed: list[str] = []
    with busy(queue, clock):
        late = queue.submit(lambda d: computed.append("late"), Deadline.after(20, clock), 6)
        good = queue.submit(lambda d: computed.append("good"), Deadline.after(30, clock), 6)
        clock.time += 20
    with pytest.raises(HttpError, match="waiting used up") as refused:
        late.result(30)
    assert refused.value.status == 503
    good.result(30)
    assert computed == ["good"]


def test_what_is_late_is_answered_where_that_harms_nobody(
    queue: WorkQueue, clock: SetClock
) -> None:
    """A pause of the machine is no reason to refuse anybody: all are late, or none behind is."""
    with busy(queue, clock):
        jobs = [queue.submit(lambda d: "done", Deadline.after(20, clock), 6) for _ in range(2)]
        clock.time += 50
    assert [job.result(30) for job in jobs] == ["done", "done"]
    queue.admission.mean_ms = 1.0
    with busy(queue, clock):
        jobs = [queue.submit(lambda d: "done", Deadline.after(ms, clock), 6) for ms in (20, 90)]
        clock.time += 30
    assert [job.result(30) for job in jobs] == ["done", "done"]


def test_how_long_requests_take_is_learned(queue: WorkQueue, clock: SetClock) -> None:
    def takes(ms: float) -> None:
        def work(deadline: Deadline) -> None:
            clock.time += ms

        queue.submit(work, Deadline.after(1e6, clock)).result(30)

    takes(20)
    assert queue.admission.mean_ms == 20
    takes(30)
    assert queue.admission.mean_ms == pytest.approx(21)
    takes(10_000)  # a pause of the machine counts no more than four times the usual
    assert queue.admission.mean_ms == pytest.approx(21 + 0.1 * 3 * 21)


def test_those_who_wait_share_the_time(queue: WorkQueue, clock: SetClock) -> None:
    """The first of two has half of what may be shared, so that the second has any."""
    with busy(queue, clock):
        jobs = [queue.submit(lambda d: d.remaining(), Deadline.after(60, clock)) for _ in range(2)]
    assert [job.result(30) for job in jobs] == [pytest.approx(0.7 * 30), 60]


def test_failures_reach_who_asked_and_free_the_thread(queue: WorkQueue, clock: SetClock) -> None:
    def fail(deadline: Deadline) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        queue.submit(fail, Deadline.after(50, clock)).result(30)
    assert queue.submit(lambda d: "done", Deadline.after(50, clock)).result(30) == "done"


def test_closing_finishes_what_was_taken(clock: SetClock) -> None:
    queue = WorkQueue("test", threads=1, longest=2, clock=clock)
    with busy(queue, clock):
        job = queue.submit(lambda d: "done", Deadline.after(50, clock))
    assert queue.close(30)
    assert job.result(0) == "done"


def test_closing_does_not_wait_for_ever(clock: SetClock) -> None:
    queue = WorkQueue("test", threads=1, longest=2, clock=clock)
    with busy(queue, clock):
        waiting = queue.submit(lambda d: "done", Deadline.after(50, clock))
        assert not queue.close(0.05)
    assert waiting.cancelled()


def test_how_many_wait_is_told(queue: WorkQueue, clock: SetClock) -> None:
    counts: list[int] = []
    queue.on_wait = counts.append
    with busy(queue, clock):
        queue.submit(lambda d: None, Deadline.after(50, clock))
    queue.close(30)
    assert counts == [1, 0, 1, 0]
