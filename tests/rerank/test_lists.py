"""A list of texts is never noise: BM25 first, then models on the best of it, in time."""

import asyncio
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from test_cascade import FakeStage, SetClock
from test_pipeline import tiny_model
from test_text_pipeline import LONG_MS, Answering

import glassrank as gr
from glassrank.deadline import Deadline
from glassrank.errors import InputError
from glassrank.rerank import BudgetWarning, CostModel, Reranker, TextPipeline, rank, text_pipeline
from glassrank.rerank.scheduler import Scheduler
from glassrank.rerank.text_pipeline import LIST_MODELS, load_rerankers
from glassrank.types import Doc

TEXTS = ["a dog ran", "cold sea", "the cat sat", "a warm bird", "cats and cats"]
BY_BM25 = [4, 2, 0, 1, 3]


@pytest.fixture
def reranker() -> Reranker:
    return Reranker(tiny_model(), exact=True)


@pytest.fixture
def slow() -> Reranker:
    """One that has no time for anything."""
    reranker = Reranker(tiny_model(), exact=True)
    reranker.is_warm, reranker.cost = True, CostModel(base=1e6)
    return reranker


def order(ranking: gr.Ranking) -> list[Any]:
    return [hit.doc_id for hit in ranking]


@pytest.mark.filterwarnings("ignore::glassrank.rerank.inputs.BudgetWarning")
def test_what_no_model_reaches_has_the_order_of_bm25(slow: Reranker) -> None:
    ranking = rank("cat", TEXTS, model=slow, budget_ms=LONG_MS)
    assert ranking.depth == 0 and order(ranking) == BY_BM25
    assert [hit.first_rank for hit in ranking] == [1, 2, 3, 4, 5]
    assert ranking[0].first_score > ranking[1].first_score > ranking[2].first_score == 0
    dicts = [{"text": text, "title": "Cat" if text == "cold sea" else ""} for text in TEXTS]
    assert 1 in order(rank("cat", dicts, model=slow, budget_ms=LONG_MS))[:3]  # titles are read, too


@pytest.mark.filterwarnings("ignore::glassrank.rerank.inputs.BudgetWarning")
def test_scores_of_what_has_found_them_take_the_place_of_bm25(slow: Reranker) -> None:
    ranking = rank("cat", TEXTS, model=slow, budget_ms=LONG_MS, scores=[1, 5, 2, 5, 3])
    assert order(ranking) == [1, 3, 4, 2, 0] and ranking[0].first_score == 5
    alike = rank("cat", TEXTS, model=slow, budget_ms=LONG_MS, scores=[1] * 5)
    assert order(alike) == BY_BM25
    for scores, says in (
        ([1], "1 scores for 5 texts"),
        ([float("nan")] * 5, "not a finite number"),
    ):
        with pytest.raises(InputError, match=says):
            rank("cat", TEXTS, model=slow, scores=scores)


@pytest.mark.filterwarnings("ignore::glassrank.rerank.inputs.BudgetWarning")
@pytest.mark.parametrize("scores", [None, [1.0] * 5], ids=["none", "equal"])
def test_a_first_stage_without_scores_is_ordered_by_bm25(slow: Reranker, scores: Any) -> None:
    texts = {f"d{place}": text for place, text in enumerate(TEXTS)}
    search = TextPipeline(Answering((list(texts), scores)), slow, docs=texts, budget_ms=LONG_MS)
    assert order(search("cat", 5)) == [f"d{place}" for place in BY_BM25]
    few = TextPipeline(Answering((list(texts), scores)), slow, docs=texts, candidates=3)
    assert order(few("cat", 5, budget_ms=LONG_MS)) == ["d2", "d0", "d1", "d3", "d4"]


class FakeLists:
    """`rank` with models of known scores and costs."""

    def __init__(self, patch: pytest.MonkeyPatch, *costs: tuple[float, float]) -> None:
        self.clock, self.costs = SetClock(), costs
        self.scores: list[np.ndarray] = []
        self._stages: Iterator[FakeStage] = iter(())
        patch.setattr(text_pipeline, "load_rerankers", self._models)
        patch.setattr(text_pipeline, "TextsStage", lambda *_, **_options: next(self._stages))
        patch.setattr(text_pipeline, "warm_up", lambda *_: None)

    def _models(self, *_: Any) -> list[Any]:
        made = [
            FakeStage(self.clock, scores, *cost)
            for scores, cost in zip(self.scores, self.costs, strict=True)
        ]
        self._stages = iter(made)
        return made

    def rank(self, query: str, texts: list[str], budget_ms: float) -> gr.Ranking:
        return rank(query, texts, budget_ms=budget_ms, clock=self.clock)


@pytest.mark.filterwarnings("ignore::glassrank.rerank.inputs.BudgetWarning")
def test_a_list_gets_better_with_its_budget_and_is_never_worse_than_bm25(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """300 texts, of which one is relevant and BM25 has it among the first, more or less; models
    that know it better, and take 2.5 and 8 ms for a text."""
    lists = FakeLists(monkeypatch, (1.0, 2.5), (4.0, 8.0))
    rng, count = np.random.default_rng(3), 300
    found: dict[float, list[float]] = {}
    for _ in range(60):
        relevant, rival = rng.choice(count, 2, replace=False)
        words = [" ".join(rng.choice(["sea", "cat", "mat", "sat", "dog"], 6)) for _ in range(count)]
        words[relevant] += " cat sat mat"
        words[rival] += " cat cat sat sat mat mat"
        truth = np.arange(count) == relevant
        lists.scores = [truth * signal + rng.normal(size=count) for signal in (4.0, 6.0)]
        for budget in (0.5, 50.0, 200.0, 1000.0):
            best = order(lists.rank("the cat sat on the mat", words, budget))[:10]
            rr = 1 / (1 + best.index(relevant)) if relevant in best else 0.0
            found.setdefault(budget, []).append(rr)
    bm25, *rising = (float(np.mean(values)) for values in found.values())
    assert bm25 <= rising[0] <= rising[1] <= rising[2]
    assert rising[2] > bm25 + 0.1


def test_it_is_said_once_that_less_than_a_tenth_was_re_ranked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists = FakeLists(monkeypatch, (1.0, 2.0))
    texts = ["a cat"] * 100
    lists.scores = [np.zeros(100)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for budget in (12.0, 12.0, 60.0):
            ranking = lists.rank("cat", texts, budget)
            assert (ranking.depth < 10) == (budget == 12.0) and ranking.depth > 0
    assert [(one.category, one.filename) for one in told] == [(BudgetWarning, __file__)]
    assert "less than a tenth of the texts could be re-ranked in 12 ms" in str(told[0].message)


def test_of_long_texts_as_much_is_read_as_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def counted(query: str, texts: list[str], **options: Any) -> Any:
        read.append(sum(map(len, texts)))
        return original(query, texts, **options)

    original = text_pipeline.rank_by_bm25
    monkeypatch.setattr(text_pipeline, "rank_by_bm25", counted)
    clock = SetClock()
    docs = [Doc("", "cat " * 50_000)] * 10
    for left in (100.0, 10.0, 0.0, float("inf")):
        text_pipeline._order_by_bm25("cat", docs, Scheduler(clock), Deadline(clock, left))
    assert read[0] == pytest.approx(10 * read[1], rel=0.01) and read[2] == 0
    assert 0 < read[0] < read[3] == 10 * 200_000


def test_the_models_of_a_list_are_chosen_in_one_place() -> None:
    names = [reranker.name for reranker in load_rerankers(None, has_budget=True)]
    assert tuple(names) == LIST_MODELS
    assert [reranker.name for reranker in load_rerankers(None, has_budget=False)] == ["default"]


@pytest.mark.parametrize("query", ["", " \n"])
def test_an_empty_query_is_an_error(reranker: Reranker, query: str) -> None:
    search = TextPipeline(Answering((["a"], [1.0])), reranker, docs={"a": "b"})
    for ranks in (lambda: rank(query, TEXTS, model=reranker), lambda: search(query)):
        with pytest.raises(InputError, match="the query is empty"):
            ranks()


def test_lists_are_ranked_with_await(reranker: Reranker) -> None:
    search = TextPipeline(Answering((["a"], [1.0])), reranker, docs={"a": "a cat"})

    async def both() -> tuple[gr.Ranking, gr.Ranking]:
        one = gr.arank("cat", TEXTS, model=reranker, k=2)
        first, second = await asyncio.gather(one, search.aquery("cat"))
        return first, second

    with ThreadPoolExecutor(1) as pool:  # a browser's tests may have an event loop in this one
        first, second = pool.submit(asyncio.run, both()).result()
    assert order(first) == order(rank("cat", TEXTS, model=reranker, k=2))
    assert order(second) == ["a"]
