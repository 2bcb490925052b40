"""Several models in one budget: each re-orders the best of those before it, in time."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_pipeline import texts, tiny_model

import glassrank
from glassrank.deadline import Deadline
from glassrank.embeddings import encode_index
from glassrank.errors import InputError
from glassrank.explanations import Change, explain_docs, what_if_doc
from glassrank.index import Index
from glassrank.index.search import TopK
from glassrank.models.io.model_folder import Passages, fingerprint
from glassrank.rerank import CostModel, Pipeline, Reranker, rank
from glassrank.rerank.candidates import CandidateGroup, PassageList
from glassrank.rerank.cascade import Cascade
from glassrank.rerank.cascade_plan import CascadePlan, Planned, plan_depths
from glassrank.rerank.scheduler import Scheduler, scoring_reserve_ms
from glassrank.rerank.stages import Candidates, Stage
from glassrank.research.evaluate import evaluate
from glassrank.research.evaluate.budget_curve import Speed
from glassrank.research.evaluate.fit_cascade_plan import BUDGETS_MS, cascade_order, fit_plan
from glassrank.types import Doc, Run

sys.path.append(str(Path(__file__).parents[1] / "embeddings"))
from small_mores import small_bert, small_index, small_mores

QUERY = "the cat sat"
NO_DOC = dict[int, Doc]().__getitem__


class SetClock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class FakeStage(Stage):
    """A model of known scores, that takes known time, on documents numbered from 0."""

    calibration = None

    def __init__(
        self, clock: SetClock, scores: np.ndarray, query_ms: float, ms: float, known: bool = True
    ) -> None:
        self._clock = clock
        self._scores = scores
        self._query_ms = query_ms
        self._ms = ms
        self.reranker: Any = self
        self.model, self.name = SimpleNamespace(name="fake"), "fake"
        self.cost = CostModel(0.0, ms) if known else CostModel()
        self.query_cost = CostModel(query_ms) if known else CostModel()
        self.usage = SimpleNamespace(passages=Passages())
        self.began: list[tuple[float, float]] = []
        """When each piece of work began, and when it was likely to end."""

    def encode_query(self, query: str) -> None:
        self.began.append((self._clock.time, self._clock.time + self.query_cost.predict(1)))
        self._clock.time += self._query_ms

    def prepare_candidates(self, asked: Candidates) -> list[CandidateGroup]:
        return [CandidateGroup(FakeScorer(self, asked.docs))]

    def least_ms(self) -> float:
        return self.query_cost.predict(1) + self.cost.predict(1)


class FakeScorer:
    """Documents of a fake stage."""

    is_interruptible = encodes = False
    max_chunk = 1e9

    def __init__(self, stage: FakeStage, docs: np.ndarray) -> None:
        self._stage, self._docs = stage, docs
        self.cost = stage.cost
        self.first_stage = np.zeros(len(docs), np.float32)

    def first_passages(self) -> PassageList:
        docs = np.arange(len(self._docs))
        return PassageList(docs, np.zeros_like(docs), np.ones(len(docs)))

    def further_passages(self, docs: int) -> None:
        return None

    def score(self, passages: PassageList, deadline: Deadline) -> np.ndarray:
        stage, count = self._stage, len(passages.docs)
        time = stage._clock.time
        stage.began.append((time, time + self.cost.predict(count)))
        stage._clock.time += stage._ms * count
        return stage._scores[self._docs[passages.docs]].astype(np.float32)

    def spans(self, docs: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return np.full((len(docs), 2), -1)

    def is_cut(self, docs: int) -> np.ndarray:
        return np.zeros(docs, np.bool_)


def run_fakes(
    clock: SetClock, stages: Sequence[FakeStage], depths: Sequence[int], budget: float
) -> Cascade:
    count = len(stages[0]._scores)
    cascade = Cascade(TopK(np.arange(count), -np.arange(count, dtype=np.float32)))
    deadline = Deadline.after(budget, clock)
    cascade.rerank("", stages, depths, deadline, Scheduler(clock))  # type: ignore[arg-type]
    return cascade


@given(
    budget=st.floats(0.5, 200),
    count=st.integers(1, 60),
    costs=st.lists(
        st.tuples(st.floats(0, 20), st.floats(0.01, 10), st.integers(0, 60)), min_size=1, max_size=3
    ),
)
def test_nothing_of_a_further_stage_begins_that_would_not_fit(
    budget: float, count: int, costs: list[tuple[float, float, int]]
) -> None:
    clock, rng = SetClock(), np.random.default_rng(0)
    stages = [FakeStage(clock, rng.normal(size=count), query, ms) for query, ms, _ in costs]
    cascade = run_fakes(clock, stages, [depth for *_, depth in costs], budget)
    for stage in stages[1:]:
        assert all(end <= budget * (1 + 1e-9) + 1e-9 for _, end in stage.began)
    expected = cascade_order([stage._scores for stage in stages], cascade.depths)
    assert cascade.places.tolist() == expected.tolist()  # the order of those before, where it ended
    assert all(np.diff(cascade.scores) <= 0)
    hits = cascade.hits(None, str, NO_DOC)
    for hit in hits:
        came = [number for number, depth in enumerate(cascade.depths, 1) if depth >= hit.rank]
        assert hit.stage == max(came, default=0)


@pytest.mark.parametrize("picked", [False, True])
def test_a_further_model_may_read_only_the_best_passage_of_the_one_before(picked: bool) -> None:
    first, second = (Reranker(tiny_model(seed), exact=True) for seed in (1, 2))
    docs = [Doc("", ". ".join(texts(30)[n : n + 6]) + ".") for n in range(0, 30, 6)]
    count = len(docs)
    by_first = {hit.doc_id: hit.passage for hit in rank(QUERY, docs, model=first)}
    assert len({span for span in by_first.values() if span and span[0]}) > 1  # not the beginnings
    cascade = [first, second]
    search = glassrank.TextPipeline(
        FixedOrder(count), cascade, docs=dict(enumerate(docs)), best_passages=picked
    )
    for ranking in (rank(QUERY, docs, model=cascade, best_passages=picked), search(QUERY)):
        for hit in ranking:
            text = docs[int(hit.doc_id)].text
            start, stop = by_first[int(hit.doc_id)] or (0, len(text))
            read = text[start:stop] if picked else text
            assert hit.score == second.scores(QUERY, [read]).values[0]
            assert hit.passage is not None
            assert not picked or start <= hit.passage[0] < hit.passage[1] <= stop


class FixedOrder:
    """A first stage that finds all documents."""

    def __init__(self, count: int) -> None:
        self._ids = list(range(count))

    def search(self, query: str, k: int) -> tuple[list[int], list[float]]:
        return self._ids, [0.0] * len(self._ids)


def fake_depths(costs: Sequence[tuple[float, float]], budget: float) -> tuple[int, ...]:
    scores = np.random.default_rng(0).normal(size=(len(costs), 100))
    clock = SetClock()
    stages = [FakeStage(clock, row, *cost) for row, cost in zip(scores, costs, strict=True)]
    return run_fakes(clock, stages, [100] * len(costs), budget).depths


def test_without_a_plan_a_model_is_skipped_that_costs_as_much_as_the_next() -> None:
    for budget in (2.0, 5.0, 50.0):
        first, second = fake_depths([(0.5, 0.1), (0.5, 0.1)], budget)
        alone = fake_depths([(0.5, 0.1)], budget)[0]
        assert first == 0 and second == alone > 0
    assert fake_depths([(0.5, 0.1), (0.5, 0.1)], float("inf")) == (0, 100)


def test_without_a_plan_time_is_kept_for_the_last_model() -> None:
    costs = [(1.0, 0.1), (1.0, 1.0)]
    assert fake_depths(costs, 5.0) == (36, 0)  # 8% of the time are to spare
    first, second = fake_depths(costs, 25.0)
    assert first >= 50 and second >= 10
    slow = [(1.0, 1.0), (1.0, 1.1)]
    assert fake_depths(slow, 20.0)[0] == 0 and fake_depths(slow, 20.0)[1] >= 15


def test_a_model_that_works_alone_goes_on_beyond_what_was_planned() -> None:
    """As it would without the others, where it is faster than predicted."""
    depths = []
    for costs in ([(1.0, 0.1)], [(1.0, 0.1), (9.0, 1.0)]):
        clock = SetClock()
        scores = np.random.default_rng(0).normal(size=100)
        stages = [FakeStage(clock, scores, *cost) for cost in costs]
        stages[0].cost = CostModel(0.0, 0.4)
        depths.append(run_fakes(clock, stages, [100] * len(stages), 6.0).depths)
    [alone], both = depths
    assert both == (alone, 0) and alone > (6.0 - 1.0) / 0.4


def test_what_a_query_costs_does_not_depend_on_how_many_documents_are_asked_for() -> None:
    """Predicted by them, the query would cost nothing for one document, and every plan would be
    wrong by that."""
    clock = SetClock()
    stage = FakeStage(clock, np.zeros(100), 2.0, 0.01, known=False)
    for depth in (100, 90, 100):
        run_fakes(clock, [stage], [depth], 50.0)
    assert stage.query_cost.predict(1) == pytest.approx(2.0)
    assert stage.expected_ms(0) == pytest.approx(2.0)


def test_a_plan_of_three_models_lets_none_re_rank_a_single_document() -> None:
    scores = np.random.default_rng(0).normal(size=1000)
    stages = [FakeStage(SetClock(), scores, *cost) for cost in ((1, 0.1), (2, 1), (4, 1.5))]
    for left in (10.0, 20.0, 40.0, 80.0):
        depths = plan_depths([stage.expected_ms for stage in stages], [1000] * 3, left)
        assert any(depths) and 1 not in depths


def test_a_first_model_that_is_slower_than_predicted_leaves_the_last_its_time() -> None:
    rng, clock = np.random.default_rng(0), SetClock()
    first, second = (FakeStage(clock, rng.normal(size=100), 1.0, ms) for ms in (0.1, 1.0))
    first._ms = 0.3
    cascade = run_fakes(clock, [first, second], [100, 100], 25.0)
    assert cascade.depths[0] < 100 and cascade.depths[1] >= 8


STORED, LIVE_LAST, LIVE = (
    [(0.5, 0.02), (0.5, 0.02)],
    [(0.5, 0.02), (5.0, 5.0)],
    [(1.0, 2.5), (4.0, 8.0)],
)


@pytest.mark.parametrize("costs", [STORED, LIVE_LAST, LIVE], ids=["stored", "mixed", "live"])
def test_a_cascade_is_never_worse_than_the_better_of_its_models(
    costs: list[tuple[float, float]],
) -> None:
    """At eleven budgets, with a first stage that has half of the relevant documents in its first
    ten, and models that are as far apart as those of the package."""
    rng = np.random.default_rng(1)
    queries, count = 150, 300
    truth = np.zeros((queries, count))
    for row in truth:
        row[rng.choice(count, 3, replace=False)] = 1
    hard = 0.6 * rng.normal(size=truth.shape) * truth  # for all of them
    first, weak, strong = (
        truth * signal + hard + rng.normal(size=truth.shape) for signal in (2.0, 2.5, 3.2)
    )
    order = np.argsort(-first, axis=1)
    truth, weak, strong = (np.take_along_axis(rows, order, 1) for rows in (truth, weak, strong))
    discounts = 1 / np.log2(np.arange(2, 12))

    def quality(chosen: slice, budget: float) -> float:
        """nDCG@10. Costs are the same for all queries, and so are depths."""
        clock, scores = SetClock(), [weak, strong][chosen]
        stages = [
            FakeStage(clock, rows[0], *cost)
            for rows, cost in zip(scores, costs[chosen], strict=True)
        ]
        depths = run_fakes(clock, stages, [count] * len(stages), budget).depths
        assert clock.time <= budget
        best = [cascade_order(list(rows), depths)[:10] for rows in zip(*scores, strict=True)]
        gains = np.take_along_axis(truth, np.array(best), 1) @ discounts
        return float(gains.mean() / discounts[:3].sum())

    both, alone = slice(0, 2), (slice(0, 1), slice(1, 2))
    gains = [
        quality(both, budget) - max(quality(one, budget) for one in alone) for budget in BUDGETS_MS
    ]
    assert min(gains) >= -0.003, dict(zip(BUDGETS_MS, gains, strict=True))
    if costs is not STORED:
        assert max(gains) > 0.01


ALONE: dict[float, float] = {}
"""What the first model gives at a budget: it is the same whatever the second is."""


@pytest.mark.parametrize(
    ("second_is", "planned"), [("better", True), ("better", False), ("worse", True)]
)
@pytest.mark.long
def test_a_cascade_is_never_worse_than_its_first_model(second_is: str, planned: bool) -> None:
    """At ten budgets; depths are learned on other queries than those that are measured. Without a
    plan nobody knows that the second model is worse."""
    rng = np.random.default_rng(1)
    queries, count, budgets = 300, 100, np.geomspace(2, 1000, 10)
    truth = rng.random((queries, count)) < 0.05
    signal = {"first": 1.2, "better": 3.0, "worse": 0.4}
    made = [truth * signal[name] + rng.normal(size=truth.shape) for name in ("first", second_is)]
    names = [f"d{place:03}" for place in range(count)]
    qrels = {
        f"q{number}": {name: int(true) for name, true in zip(names, row, strict=True)}
        for number, row in enumerate(truth)
    }
    dev = [f"q{number}" for number in range(queries // 2)]
    costs = [(0.5, 0.02), (2.0, 1.0)]

    def run_of(scores: np.ndarray) -> Run:
        return Run.from_rows((f"q{n}", names, row) for n, row in enumerate(scores))

    plan = fit_plan(
        ["first", "second"],
        run_of(np.tile(-np.arange(count, dtype=float), (queries, 1))),
        [run_of(scores) for scores in made],
        [Speed(1 / ms, query_ms) for query_ms, ms in costs],
        {query: qrels[query] for query in dev},
        "nDCG@10",
        {budget: budget - scoring_reserve_ms(budget) for budget in budgets.tolist()},
    )
    seconds_used = 0
    for budget in budgets.tolist():
        values = []
        for together in (False, True):
            if not together and budget in ALONE:
                values.append(ALONE[budget])
                continue
            rows = []
            for number in range(queries // 2, queries):
                clock = SetClock()
                stages = [
                    FakeStage(clock, scores[number], *cost)
                    for scores, cost in zip(made, costs, strict=True)
                ]
                depths = plan.depths(budget) if planned else [count, count]
                depths = depths if together else [count, 0]
                cascade = run_fakes(clock, stages, depths, budget)
                hits = cascade.hits(10, lambda place: names[place], NO_DOC)
                rows.append((f"q{number}", [h.doc_id for h in hits], -np.arange(len(hits)) * 1.0))
                seconds_used += cascade.depths[1] > 0
            rest = {query: judged for query, judged in qrels.items() if query not in dev}
            values.append(evaluate(Run.from_rows(rows), rest, ["nDCG@10"]).mean["nDCG@10"])
        alone, both = values
        ALONE[budget] = alone
        assert both >= alone - 0.005, (budget, plan.depths(budget), alone, both)
    if second_is == "better":
        assert both > alone + 0.1 and seconds_used
    else:
        assert not seconds_used


def test_a_plan_does_not_rely_on_the_second_model_alone() -> None:
    """It is better and would just fit; but with nothing to fall back on, one slow moment costs all
    that the first model gives."""
    rng = np.random.default_rng(0)
    truth = rng.random((200, 60)) < 0.1
    names = [f"d{place:02}" for place in range(60)]
    qrels = {
        f"q{number}": {name: int(true) for name, true in zip(names, row, strict=True)}
        for number, row in enumerate(truth)
    }
    made = [truth * signal + rng.normal(size=truth.shape) for signal in (1.5, 3.0)]
    first, *scored = (
        Run.from_rows((f"q{n}", names, row) for n, row in enumerate(scores))
        for scores in (np.tile(-np.arange(60.0), (200, 1)), *made)
    )
    speeds = [Speed(10.0, 1.0), Speed(10.0, 1.0)]
    for left in (6.9, 9.0, 13.9):
        plan = fit_plan(["a", "b"], first, scored, speeds, qrels, "nDCG@10", {20.0: left})
        [row] = plan.budgets
        fallback = [
            fit_plan(["a"], first, scored[:1], speeds[:1], qrels, "nDCG@10", {20.0: ms})
            for ms in (float(speeds[0].ms(row.depths[0])), left)
        ]
        values = [plan.budgets[0].value for plan in fallback]
        assert row.depths[1] > 0 or left == 6.9
        assert values[0] >= values[1] - 0.005 and row.value >= row.first_alone == values[1]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    docs = [Doc(f"d{n}", text) for n, text in enumerate(texts(40))]
    return Index.build(docs, tmp_path_factory.mktemp("cascade") / "index")


@pytest.fixture(scope="module")
def rerankers(index: Index) -> list[Reranker]:
    """The first has a store, the second ranks live."""
    first, second = (Reranker(tiny_model(seed), exact=True) for seed in (0, 1))
    encode_index(index, first.saved, dtype="float32")
    return [first, second]


def plan_of(rerankers: Sequence[Reranker], *rows: tuple[float, tuple[int, ...]]) -> CascadePlan:
    planned = tuple(Planned(budget, depths, 0.5, 0.5) for budget, depths in rows)
    return CascadePlan(tuple(fingerprint(r.model) for r in rerankers), "nDCG@10", planned)


def test_the_second_model_re_orders_the_best_of_the_first(
    index: Index, rerankers: list[Reranker]
) -> None:
    plan = plan_of(rerankers, (50, (30, 7)))
    both = Pipeline(index, rerankers, plan=plan)
    assert [model.store is None for model in both.stages] == [False, True]
    ranking = both(QUERY, 40)
    first = Pipeline(index, rerankers[0], candidates=30)(QUERY, 40)
    assert ranking.depths == (30, 7) and ranking.depth == 30
    assert [hit.doc_id for hit in ranking.hits[7:]] == [hit.doc_id for hit in first.hits[7:]]
    best = {hit.doc_id: hit.first_score or 0.0 for hit in first.hits[:7]}
    own = rerankers[1].scores(QUERY, [index.doc(name).text for name in best], list(best.values()))
    expected = dict(zip(best, own.values.tolist(), strict=True))
    assert [hit.doc_id for hit in ranking.hits[:7]] == sorted(expected, key=lambda n: -expected[n])
    assert [hit.score for hit in ranking.hits[:7]] == pytest.approx(
        sorted(expected.values(), reverse=True), rel=1e-5
    )
    scores = [hit.score for hit in ranking]
    assert scores == sorted(scores, reverse=True)
    assert [hit.stage for hit in ranking] == [2] * 7 + [1] * 23 + [0] * 10
    names = ["first_stage", "query", "scoring", "query_2", "scoring_2", "sorting", "total"]
    assert list(ranking.timing) == names
    stages = {stage["name"]: stage.get("documents") for stage in ranking.to_json()["stages"]}
    assert (stages["scoring"], stages["scoring_2"]) == (30, 7)


def test_without_a_budget_all_models_go_as_deep_as_they_are_used(
    index: Index, rerankers: list[Reranker]
) -> None:
    assert Pipeline(index, rerankers)(QUERY).depths == (0, 40)  # the last one decides on all
    assert Pipeline(index, rerankers, candidates=5)(QUERY).depths == (0, 5)


def test_a_stored_model_does_without_one_that_is_stored_too(tmp_path: Path) -> None:
    docs = [Doc(f"d{n}", text) for n, text in enumerate(texts(40))]
    index = Index.build(docs, tmp_path / "index")
    models = [Reranker(tiny_model(seed), exact=True) for seed in (0, 1)]
    for model in models:
        encode_index(index, model.saved, dtype="float32")
    pipeline = Pipeline(index, models, budget_ms=60_000)
    assert all(stage.store is not None and stage.mean_size > 1 for stage in pipeline.stages)
    ranking = pipeline(QUERY, 40)
    assert ranking.depths == (0, 40) and not ranking.cut_short
    assert ranking.hits == tuple(
        hit._replace(stage=2) for hit in Pipeline(index, models[1])(QUERY, 40)
    )


def test_texts_have_cascades_too(rerankers: list[Reranker]) -> None:
    some = texts(12)
    ranking = rank(QUERY, some, model=rerankers)
    assert ranking.depths == (0, 12)
    assert ranking.hits[0].doc_id == rank(QUERY, some, model=rerankers[1]).hits[0].doc_id


@pytest.mark.parametrize("last", ["bert", "mores"])
@pytest.mark.long
def test_transformers_can_be_last(tmp_path: Path, last: str) -> None:
    index = small_index(tmp_path / "index")
    strong = Reranker({"bert": small_bert, "mores": small_mores}[last](), exact=True)
    pipeline = Pipeline(index, [Reranker(tiny_model(), exact=True), strong], candidates=12)
    ranking = pipeline("return the list of a class", 60, budget_ms=60_000)
    assert ranking.depths == (0, 12)
    found = glassrank.explain(pipeline, ranking.query, ranking.hits[0])
    assert found.model == last
    assert found.score == pytest.approx(ranking.hits[0].score, abs=1e-4)


def test_a_hit_is_explained_by_the_model_that_placed_it(
    index: Index, rerankers: list[Reranker]
) -> None:
    pipeline = Pipeline(index, rerankers, plan=plan_of(rerankers, (50, (30, 7))))
    ranking = pipeline(QUERY, 40)
    for place in (0, 6, 7, 29):
        hit = ranking.hits[place]
        found = glassrank.explain(pipeline, QUERY, hit)
        alone = Pipeline(index, rerankers[0 if place > 6 else 1])
        (own,) = [other for other in alone(QUERY, 40) if other.doc_id == hit.doc_id]
        assert found.score == pytest.approx(own.score, abs=1e-4)
        listed = [note for note in found.notes if "The list has the score" in note]
        assert bool(listed) == (abs(hit.score - found.score) > 1e-3)
        assert explain_docs(pipeline, QUERY, [hit.doc_id])[0].score == found.score
        changed, _ = what_if_doc(pipeline, QUERY, str(hit.doc_id), Change("document", 0, "sea"))
        before = changed.moved[changed.doc].score_before
        assert before == pytest.approx(found.score, abs=1e-3)


def test_a_plan_has_depths_for_every_budget(tmp_path: Path, rerankers: list[Reranker]) -> None:
    plan = plan_of(rerankers, (10, (100, 0)), (50, (500, 20)), (1000, (500, 400)))
    depths = {ms: plan.depths(ms) for ms in (0.1, 12, 50, 60, 9000, float("inf"), -1)}
    assert depths == {
        0.1: (100, 0),
        12: (500, 20),
        50: (500, 20),
        60: (500, 400),
        9000: (500, 400),
        float("inf"): (500, 400),
        -1: (100, 0),
    }


def test_a_plan_is_for_its_own_models(index: Index, rerankers: list[Reranker]) -> None:
    plan = plan_of(rerankers, (50, (30, 7)))
    for others in (rerankers[::-1], rerankers[:1]):
        with pytest.raises(InputError, match="made for other models"):
            Pipeline(index, others, plan=plan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[]", "expected a plan"),
        ("{}", "'models' is missing"),
        ('{"models": ["a"], "measure": "RR", "budgets": []}', "expected 1 to 1000, found 0"),
        ('{"models": ["a"], "measure": "RR", "budgets": [], "format": 2}', "format 2 is not known"),
    ],
)
def test_a_plan_that_makes_no_sense(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InputError, match=message):
        CascadePlan.read(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("budget_ms", "depths"), [(0, (1, 1)), (10, (1,)), (10, (-1, 1)), (10, (1, 1 << 40))]
)
def test_a_row_of_a_plan_that_makes_no_sense(budget_ms: float, depths: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="budgets: expected"):
        CascadePlan(("a", "b"), "RR", (Planned(budget_ms, depths, 0.0, 0.0),))
