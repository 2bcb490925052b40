"""Under load: refusals that say when to come again, and nothing computed in vain."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from small_service import in_process, message
from starlette.testclient import TestClient

from glassrank.deadline import now
from glassrank.rerank import Deadline, Pipeline
from glassrank.rerank.scheduler import Scheduler
from glassrank.serve import IndexReloader, Options
from glassrank.serve.searching import HitWriter
from glassrank.serve.service import Service, WorkQueue


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> dict[str, WorkQueue]:
    """Those of the service that is made next, by name."""
    found: dict[str, WorkQueue] = {}
    original = WorkQueue.__init__

    def noting(self: WorkQueue, name: str, *rest: Any) -> None:
        original(self, name, *rest)
        found[name] = self

    monkeypatch.setattr(WorkQueue, "__init__", noting)
    return found


@contextmanager
def busy(queue: WorkQueue) -> Iterator[None]:
    """Its thread is at work until the end of this."""
    begun, release = threading.Event(), threading.Event()

    def work(deadline: Deadline) -> None:
        begun.set()
        release.wait(30)

    assert queue.enter()
    job = queue.submit(work, Deadline.after(1e9))
    assert begun.wait(30)
    try:
        yield
    finally:
        release.set()
        job.result(30)
        queue.leave()


def until_one_is_late(queue: WorkQueue) -> None:
    """Waits for a request that waits, and for the end of its time, which begins when it arrives."""
    while not queue.admission.waiting or not queue.admission.waiting[0].deadline.has_passed():
        threading.Event().wait(0.005)


@pytest.fixture
def loaded(options: Options, queues: dict[str, WorkQueue]) -> Iterator[SimpleNamespace]:
    with in_process(replace(options, queue=1)) as client:
        yield SimpleNamespace(client=client, queues=queues)


def counts(client: TestClient) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("glassrank_requests_shed_total")
    }


def test_a_full_queue_is_told_when_to_come_again(loaded: SimpleNamespace) -> None:
    client, queue = loaded.client, loaded.queues["search"]
    with ThreadPoolExecutor(1) as pool, busy(queue):
        waiting = pool.submit(client.post, "/search", json={"query": "cat", "budget_ms": 9000})
        while not queue.admission.waiting:
            threading.Event().wait(0.005)
        answer = client.post("/search", json={"query": "cat"})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["connection"] == "close"
        assert "try again later" in message(answer)
        # Explanations and given texts have a queue of their own, and so has health.
        asked = {"query": "cat", "documents": ["cat"]}
        assert client.post("/v1/rerank", json=asked).is_success
        assert client.get("/healthz").is_success
    assert waiting.result().is_success
    assert counts(client) == {'glassrank_requests_shed_total{queue="search",reason="full"}': 1.0}


def test_a_wait_that_is_too_long_for_the_budget_is_refused(loaded: SimpleNamespace) -> None:
    client, queue = loaded.client, loaded.queues["search"]
    queue.admission.mean_ms = 5000.0
    with busy(queue):
        answer = client.post("/search", json={"query": "cat", "budget_ms": 50})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) in (4, 5)
    assert "would use up this budget" in message(answer)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_past_its_deadline_is_dropped_if_others_wait(
    options: Options, queues: dict[str, WorkQueue], stream: bool
) -> None:
    """Even a stream has the refusal's own status: nothing of it was sent."""
    with in_process(options) as client, ThreadPoolExecutor(1) as pool:
        queue = queues["search"]
        with busy(queue):
            late = pool.submit(
                client.post, "/search", json={"query": "cat", "budget_ms": 60, "stream": stream}
            )
            until_one_is_late(queue)
            queue.submit(lambda _: None, Deadline.after(60_000), 60_000)  # needs a third of it
            queue.admission.waiting[0].needs_ms = 60_000
        answer = late.result()
        assert answer.status_code == 503
        assert "waiting used up" in message(answer)
        assert "retry-after" in answer.headers
        assert 'glassrank_requests_shed_total{queue="search",reason="too_late"}' in counts(client)
        assert "glassrank_reranked_depth_count" not in client.get("/metrics").text  # not computed


def test_a_late_request_is_answered_where_nobody_else_waits(loaded: SimpleNamespace) -> None:
    """As the page's own is, on a machine that was at something else for a moment."""
    client, queue = loaded.client, loaded.queues["search"]
    with ThreadPoolExecutor(1) as pool:
        with busy(queue):
            late = pool.submit(client.post, "/search", json={"query": "cat", "budget_ms": 60})
            until_one_is_late(queue)
        answer = late.result()
    assert answer.status_code == 200 and answer.json()["hits"]
    assert answer.json()["depth"] == 0 and answer.json()["cut_short"]


def test_a_page_on_an_idle_machine_is_never_refused(
    options: Options, queues: dict[str, WorkQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may ask twice at once, as somebody types, after a moment that has spoilt predictions."""
    monkeypatch.setattr(Scheduler, "min_response_ms", lambda *_: 1e6)
    form = {"query": "cat", "budget_ms": 500, "model": "none"}
    with in_process(options) as client, ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            asked = [pool.submit(client.post, "/search", json=form) for _ in range(2)]
            assert [each.result().status_code for each in asked] == [200, 200]
        assert counts(client) == {}


def test_what_was_granted_is_told(loaded: SimpleNamespace) -> None:
    """All that the budget leaves on an idle machine, and a share of it while others wait."""
    client, queue = loaded.client, loaded.queues["search"]
    alone = client.post("/search", json={"query": "cat", "budget_ms": 9000}).json()
    assert 6000 < alone["granted_ms"] < 9000 and not alone["cut_short"]
    assert not alone["shared"]
    with ThreadPoolExecutor(1) as pool:
        with busy(queue):
            asked = pool.submit(client.post, "/search", json={"query": "cat", "budget_ms": 9000})
            while not queue.admission.waiting:
                threading.Event().wait(0.005)
            others = [queue.submit(lambda _: None, Deadline.after(8000), 1.0) for _ in range(3)]
        shared = asked.result().json()
    assert shared["granted_ms"] < 4500 and shared["shared"]
    for other in others:
        other.result(30)
    text = client.get("/metrics").text
    assert 'glassrank_granted_seconds_count{model="tk"} 2.0' in text
    assert 'glassrank_reranked_depth_count{model="tk"} 2.0' in text


def test_a_budget_that_was_used_up_by_waiting_grants_nothing(loaded: SimpleNamespace) -> None:
    """Where everybody is late it is answered all the same, and less than nothing is never told."""
    client, queue = loaded.client, loaded.queues["search"]
    with ThreadPoolExecutor(1) as pool:
        with busy(queue):
            asked = pool.submit(client.post, "/search", json={"query": "cat", "budget_ms": 1})
            while not queue.admission.waiting:
                threading.Event().wait(0.005)
            threading.Event().wait(0.05)
        answer = asked.result()
    assert answer.status_code == 200 and answer.json()["granted_ms"] == 0


def test_a_failure_in_the_middle_of_a_stream_is_its_last_line(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Pipeline, "_final", fail)
    with in_process(options) as client:
        answer = client.post("/search", json={"query": "cat", "stream": True})
    first, last = answer.text.splitlines()
    assert '"stage": "first_stage"' in first
    assert '"stage": "error", "code": "internal_error"' in last
    assert "the rest of the response failed" in last


def test_a_bug_is_an_error_in_json(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(Pipeline, "stream", fail)
    with in_process(options) as client:
        answer = client.post("/search", json={"query": "cat"})
        assert answer.status_code == 500
        assert "secret" not in answer.text and "log" in message(answer)
        assert client.get("/healthz").is_success


def test_an_answer_after_its_budget_is_counted(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = HitWriter.write

    def slow(*arguments: Any) -> Any:
        threading.Event().wait(0.06)
        return original(*arguments)

    monkeypatch.setattr(HitWriter, "write", slow)
    with in_process(options) as client:
        assert client.post("/search", json={"query": "cat", "budget_ms": 50}).is_success
        assert client.post("/search", json={"query": "cat", "budget_ms": 9000}).is_success
        text = client.get("/metrics").text
    assert 'glassrank_budget_overruns_total{route="/search"} 1.0' in text


def test_the_time_to_send_an_answer_is_part_of_its_budget(options: Options) -> None:
    service = Service(options, IndexReloader(options))
    for _ in range(20):
        service.scheduler.learn("sending", 1, 30.0)
    request: Any = SimpleNamespace(state=SimpleNamespace(arrived=now() - 100))

    def given() -> float:
        """Milliseconds from the arrival to the end of work."""
        with ThreadPoolExecutor(1) as pool:  # other tests may leave a loop in the first one
            work = service.run(request, service.searches, lambda deadline: deadline.at, 1000.0)
            return pool.submit(asyncio.run, work).result() - request.state.arrived

    assert given() == pytest.approx(910, abs=5)  # 30 for sending, and 60 to spare
    assert request.state.budget_ms == 1000.0
    for _ in range(20):
        service.scheduler.learn("sending", 1, 5000.0)
    assert given() == pytest.approx(750, abs=5)  # a quarter at most is set aside
