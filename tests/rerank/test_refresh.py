"""A query reads one state of index and store, whatever happens beside it."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_pipeline import WORDS, texts, tiny_model

from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.rerank import CostModel, Pipeline, Reranker
from glassrank.types import Doc, Ranking


class Followed:
    """A pipeline, and the one that takes its place when the index has changed, as in a service."""

    def __init__(self, pipeline: Pipeline, index: Index) -> None:
        self.now = pipeline
        self.index = index  # the very object that the first pipeline was made with

    def __call__(self, query: str, k: int, budget_ms: float | None = None) -> Ranking:
        return self.now(query, k, budget_ms=budget_ms)

    def change(self, number: int) -> None:
        """Others take the place of documents: numbers of documents mean something else after it."""
        writer = Index(self.index.path)
        writer.add([Doc(f"n{number}", f"the cat sat on the {WORDS[2 + number % 9]} mat")])
        writer.delete([f"d{number}"])
        writer.merge()
        if self.now.store is not None:
            encode_index(writer, self.now.reranker.saved)
        assert self.index.refresh()
        self.now = self.now.follow(self.index)


@pytest.fixture(params=["stored", "live"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Followed:
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(20))], tmp_path / "i")
    reranker = Reranker(tiny_model(), exact=True)
    if request.param == "stored":
        encode_index(index, reranker.saved)
    made = Pipeline(index, reranker)
    assert (made.store is None) == (request.param == "live")
    return Followed(made, index)


def between(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable) -> None:
    """`act` happens once, in the middle of the next query."""
    owner = {"first stage": Index, "query": Reranker}[step]
    name = {"first stage": "top_k", "query": "encode_query"}[step]
    original = getattr(owner, name)

    def acting(*arguments: object, **more: object) -> object:
        monkeypatch.setattr(owner, name, original)
        act()
        return original(*arguments, **more)

    monkeypatch.setattr(owner, name, acting)


@pytest.mark.tried(
    "Files",
    "an index and its store changed in the middle of a query",
    "the answer of one state",
    tries=3,
)
@pytest.mark.parametrize("step", ["first stage", "query"])
def test_a_change_in_the_middle_of_a_query_does_not_touch_it(
    pipeline: Followed, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = pipeline("the cat sat", k=30).hits
    for number in range(3):
        between(monkeypatch, step, lambda number=number: pipeline.change(number))
        assert pipeline("the cat sat", k=30).hits == expected
        expected = pipeline("the cat sat", k=30).hits
        assert {f"n{number}"} <= {hit.doc_id for hit in expected}


def test_queries_beside_changes_are_all_right(pipeline: Followed) -> None:
    done = threading.Event()
    seen: set[frozenset[str]] = set()

    def ask() -> int:
        count = 0
        while not done.is_set():
            hits = pipeline("the cat sat", k=30, budget_ms=5000).hits
            assert len(hits) == 20
            seen.add(frozenset(hit.doc_id for hit in hits))
            count += 1
        return count

    states = {frozenset(f"d{n}" for n in range(20))}
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        try:
            for number in range(3):
                pipeline.change(number)
                states.add(frozenset(hit.doc_id for hit in pipeline("the cat sat", k=30)))
        finally:
            done.set()
        assert sum(job.result(60) for job in asking) > 6
    assert seen <= states


def test_what_was_learned_is_kept_when_the_index_changes(pipeline: Followed) -> None:
    before = pipeline.now
    pipeline.change(0)
    assert pipeline.now.stages[0].cost is before.stages[0].cost
    assert pipeline.now.scheduler is before.scheduler


class Watched(CostModel):
    inside = 0

    def _add(self, size: float, took: float) -> None:
        self.inside += 1
        assert self.inside == 1, "two threads at once"
        time.sleep(0.001)
        super()._add(size, took)
        self.inside -= 1


def test_threads_learn_one_after_the_other() -> None:
    cost = Watched()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: cost.learn(10.0, 5.0), range(40)))
    assert cost.predict(20) == pytest.approx(10)
