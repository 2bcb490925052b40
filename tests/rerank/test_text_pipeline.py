"""A first stage of somebody else's: within the budget, and one sentence where it is dead."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_pipeline import texts, tiny_model

from glassrank.deadline import LateError
from glassrank.errors import GlassrankError, InputError
from glassrank.explanations import explain
from glassrank.index import Index
from glassrank.index.first_stage import FirstStage, IndexFirstStage, retrieve
from glassrank.rerank import BudgetWarning, Pipeline, Reranker, TextPipeline, rank
from glassrank.types import Doc

TEXTS = {f"d{n}": text for n, text in enumerate(texts(30))}
LONG_MS = 60_000.0
"""More than any test takes, on any machine."""


class ManualClock:
    """Moves when it is told to, and a little with each look at it."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 0.001
        return self.time


class Listed:
    """All documents in their order, after so many milliseconds."""

    def __init__(self, takes: float = 0.0, clock: ManualClock | None = None) -> None:
        self.takes, self.clock = takes, clock

    def search(self, query: str, k: int) -> tuple[list[str], list[float]]:
        if self.clock is not None:
            self.clock.time += self.takes
        ids = list(TEXTS)[:k]
        return ids, [-float(n) for n in range(len(ids))]

    def fetch(self, doc_ids: Sequence[str]) -> list[str]:
        return [TEXTS[doc_id] for doc_id in doc_ids]


class Answering:
    """What it is told to answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def search(self, query: str, k: int) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Hanging:
    """Answers when it is let go."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def search(self, query: str, k: int) -> tuple[list[str], list[float]]:
        self.free.wait(60)
        return ["d0"], [1.0]

    def fetch(self, doc_ids: Sequence[str]) -> list[str]:
        self.free.wait(60)
        return [TEXTS[doc_id] for doc_id in doc_ids]


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    stage = Hanging()
    yield stage
    stage.free.set()


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker(tiny_model(), exact=True)


def test_scores_are_those_of_the_texts(reranker: Reranker) -> None:
    ranking = TextPipeline(Listed(), reranker, docs=TEXTS)("the cat sat", k=30)
    alone = rank("the cat sat", list(TEXTS.values()), model=reranker, ids=list(TEXTS))
    assert {hit.doc_id: hit.score for hit in ranking} == pytest.approx(
        {hit.doc_id: hit.score for hit in alone}, rel=1e-5
    )
    assert ranking.depth == ranking.found == ranking.num_encoded == 30 and not ranking.cut_short
    assert [hit.first_rank for hit in sorted(ranking, key=lambda hit: hit.first_rank or 0)] == [
        *range(1, 31)
    ]
    assert ranking[0].text == TEXTS[ranking[0].doc_id]
    assert ranking[0].doc is not None and ranking[0].doc.doc_id == ranking[0].doc_id
    assert list(ranking.timing) == "first_stage texts query scoring sorting total".split()


def test_what_is_not_a_candidate_stays_below_and_is_read_when_asked_for(reranker: Reranker) -> None:
    ranking = TextPipeline(Listed(), reranker, candidates=5)("the cat sat", k=8)
    assert ranking.depth == 5 and [hit.doc_id for hit in ranking[5:]] == ["d5", "d6", "d7"]
    assert ranking[7].text == TEXTS["d7"]


def test_a_slow_first_stage_leaves_less_for_the_rest(reranker: Reranker) -> None:
    clock = ManualClock()
    quick = TextPipeline(Listed(10, clock), reranker, budget_ms=LONG_MS, clock=clock)("the cat")
    assert quick.depth == 30 and quick.timing["first_stage"] == pytest.approx(10, abs=1)
    slow = TextPipeline(Listed(LONG_MS - 1e-3, clock), reranker, budget_ms=LONG_MS, clock=clock)
    with pytest.warns(BudgetWarning, match="nothing could be re-ranked"):
        ranking = slow("the cat")
    assert ranking.cut_short and ranking.depth == 0
    assert [hit.doc_id for hit in ranking] == [f"d{n}" for n in range(10)]
    assert ranking[0].text == TEXTS["d0"]


def test_one_that_does_not_answer_is_a_sentence(reranker: Reranker, hanging: Hanging) -> None:
    search = TextPipeline(hanging, reranker, docs=TEXTS)
    with pytest.raises(LateError, match="the first stage Hanging did not answer in time"):
        search("the cat", budget_ms=20)


def test_texts_that_come_too_late_leave_the_first_stages_order(
    reranker: Reranker, hanging: Hanging
) -> None:
    search = TextPipeline(Listed(), reranker, docs=hanging)
    with pytest.warns(BudgetWarning):
        ranking = search("the cat", k=3, budget_ms=300)
    assert [hit.doc_id for hit in ranking] == ["d0", "d1", "d2"]
    assert ranking.cut_short and ranking.depths == (0,)


@pytest.mark.parametrize("budget_ms", [None, LONG_MS])
def test_one_that_fails_is_a_sentence(reranker: Reranker, budget_ms: float | None) -> None:
    dead = Answering(ConnectionRefusedError("connection refused"))
    search = TextPipeline(dead, reranker, docs=TEXTS, budget_ms=budget_ms)
    with pytest.raises(
        GlassrankError,
        match=r"^the first stage Answering failed \(ConnectionRefusedError: connection refused\)",
    ):
        search("the cat")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "returned None"),
        ((["a"], ["x"]), "returned"),
        ((["a", "b"], [1.0]), "2 ids and 1 scores"),
        ((["a"], [float("nan")]), "not a finite number"),
        ((["a", "a"], [2.0, 1.0]), "the same id twice"),
    ],
)
def test_answers_that_cannot_be_ranked(answer: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        retrieve(Answering(answer), "the cat", 10)


def test_more_than_was_asked_for_is_cut() -> None:
    assert retrieve(Answering((["a", "b"], [2, 1])), "the cat", 1) == (["a"], [2.0])


def test_documents_that_are_not_there(reranker: Reranker) -> None:
    with pytest.raises(InputError, match="found 'd0', which docs lacks"):
        TextPipeline(Listed(), reranker, docs={"x": "y"})("the cat")
    with pytest.raises(InputError, match="an Answering has no documents to fetch; give docs="):
        TextPipeline(Answering(None), reranker)
    with pytest.raises(
        InputError, match=r"a first stage needs search\(query, k\), which a dict lacks"
    ):
        TextPipeline({}, reranker, docs=TEXTS)  # type: ignore[arg-type]


def test_nothing_was_found(reranker: Reranker) -> None:
    ranking = TextPipeline(Answering(([], [])), reranker, docs=TEXTS, budget_ms=LONG_MS)("the cat")
    assert len(ranking) == 0 and not ranking.cut_short


def test_an_index_is_one_of_them(reranker: Reranker, tmp_path: Path) -> None:
    index = Index.build([Doc(doc_id, text, "A cat") for doc_id, text in TEXTS.items()], tmp_path)
    stage = IndexFirstStage(index, "ql")
    assert isinstance(stage, FirstStage)
    ranking = TextPipeline(stage, reranker)("the cat sat")
    assert ranking.depth == 30 and ranking[0].title == "A cat"
    first = {hit.doc_id: hit.score for hit in index.search("the cat sat", 30, "ql")}
    assert all(hit.first_score == pytest.approx(first[hit.doc_id]) for hit in ranking)


def test_its_hits_are_explained(reranker: Reranker) -> None:
    search = TextPipeline(Listed(), reranker)
    ranking = search("the cat sat")
    explanation = explain(search, ranking.query, ranking[0])
    assert explanation.doc_id == ranking[0].doc_id
    assert explanation.score == pytest.approx(ranking[0].score, rel=1e-4)
    pair = explain(search, ranking.query, *ranking[:2])
    assert pair.right.score == pytest.approx(ranking[1].score, rel=1e-4)


def test_documents_are_explained_by_their_ids(reranker: Reranker, tmp_path: Path) -> None:
    search = TextPipeline(Listed(), reranker)
    ranking = search("the cat sat")
    found = explain(search, ranking.query, ranking[0].doc_id)
    assert found.score == pytest.approx(ranking[0].score, rel=1e-4)
    index = Index.build([Doc(doc_id, text) for doc_id, text in TEXTS.items()], tmp_path / "i")
    pipeline = Pipeline(index, reranker)
    hits = pipeline("the cat sat", 2).hits
    both = explain(pipeline, "the cat sat", hits[0].doc_id, hits[1])
    assert both.left.score == pytest.approx(hits[0].score, rel=1e-4)
    assert both.right.score == pytest.approx(hits[1].score, rel=1e-4)
    with pytest.raises(InputError, match="has the id 'nobody'"):
        explain(pipeline, "the cat sat", "nobody")
