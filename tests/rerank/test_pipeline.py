"""The whole query: same scores as the model alone, in time, and in an order that says how far it
came."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from step_clock import StepClock

from glassrank.deadline import Deadline, now
from glassrank.embeddings import Store, encode_index
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models import EmbeddingTable
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.late_interaction import ContextualConfig, TKConfig
from glassrank.rerank import BudgetWarning, CostModel, Pipeline, Reranker, rank, rerank_run
from glassrank.research.papers.tk import TK
from glassrank.types import Doc, Run

WORDS = ["<pad>", "<unk>", "cat", "dog", "mat", "sat", "the", "sea", "cold", "warm", "bird"]


def tiny_model(seed: int = 0) -> SavedModel:
    torch.manual_seed(seed)
    config = TKConfig(size=8, contextual=ContextualConfig(1, 2, 4, feed_forward=8))
    model = TK(config, EmbeddingTable(torch.randn(len(WORDS), 8), trained=False))
    with torch.no_grad():
        model.log_weights.uniform_(-1, 1)
        model.length_weights.uniform_(-1, 1)
    model.mix_first_stage(0.5)
    return SavedModel(model.eval(), Usage(query_length=6, doc_length=12), WORDS)


def texts(count: int) -> list[str]:
    rng = np.random.default_rng(1)
    return [" ".join(["cat", *rng.choice(WORDS[2:], rng.integers(1, 15))]) for _ in range(count)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    docs = [Doc(f"d{n}", text) for n, text in enumerate(texts(40))]
    return Index.build(docs, tmp_path_factory.mktemp("pipeline") / "index")


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker(tiny_model(), exact=True)


@pytest.mark.parametrize("dtype", [None, "float32", "float16", "bf16", "int8"])
def test_scores_are_the_models_own(
    index: Index, reranker: Reranker, tmp_path: Path, dtype: str | None
) -> None:
    store = None
    if dtype is not None:
        encode_index(index, reranker.saved, tmp_path / "store", dtype)
        store = Store.open(tmp_path / "store", reranker.model, index.snapshot)
    ranking = Pipeline(index, reranker, store=store)("the cat sat", k=40)
    first = index.search("the cat sat", 40)
    own = reranker.scores(
        "the cat sat", [index.doc(h.doc_id).text for h in first], [h.score for h in first]
    ).values
    expected = {hit.doc_id: value for hit, value in zip(first, own.tolist(), strict=True)}
    close = {None: 1e-4, "float32": 1e-4, "float16": 0.02, "bf16": 0.1, "int8": 0.2}[dtype]
    for hit in ranking:
        assert hit.score == pytest.approx(expected[hit.doc_id], rel=close, abs=close)
    scores = [hit.score for hit in ranking]
    assert scores == sorted(scores, reverse=True) and ranking.depth == len(first) == 40
    assert [h.doc_id for h in first] == [
        h.doc_id for h in sorted(ranking, key=lambda h: h.first_rank or 0)
    ]


@settings(deadline=None, max_examples=30)
@given(budget=st.floats(1, 60), base=st.floats(0, 10), rate=st.floats(0.001, 1))
def test_what_the_time_does_not_allow_keeps_the_first_stages_order(
    index: Index, reranker: Reranker, budget: float, base: float, rate: float
) -> None:
    pipeline = Pipeline(index, reranker, clock=StepClock(), calibrate=False)
    pipeline.stages[0].cost = CostModel(base, rate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        ranking = pipeline("the cat sat", k=40, budget_ms=budget)
    assert ranking.cut_short == (ranking.depth < 40)
    places = [hit.first_rank for hit in ranking]
    assert sorted(places[: ranking.depth]) == list(range(1, ranking.depth + 1))
    assert places[ranking.depth :] == list(range(ranking.depth + 1, 41))
    scores = [hit.score for hit in ranking]
    assert scores == sorted(scores, reverse=True)
    assert ranking.timing["total"] == pytest.approx(
        sum(v for name, v in ranking.timing.items() if name != "total")
    )


def test_a_real_budget_is_roughly_kept(index: Index, reranker: Reranker) -> None:
    pipeline = Pipeline(index, reranker, budget_ms=2000)
    ranking = pipeline("the cat sat", k=5)
    assert ranking.depth == 40 and len(ranking) == 5
    assert set(ranking.timing) == {"first_stage", "query", "scoring", "sorting", "total"}


def test_candidates_that_are_there_already(index: Index, reranker: Reranker) -> None:
    first = index.top_k(["the cat sat"], 7)[0]
    pipeline = Pipeline(index, reranker)
    again = pipeline.rerank("the cat sat", first.docs, first.scores)
    assert {hit.doc_id for hit in again} == {index.snapshot.doc_id(n) for n in first.docs.tolist()}


def test_a_run(index: Index, reranker: Reranker) -> None:
    run = Run.from_dict({"q": {"d3": 1.0, "d1": 9.0, "d2": 5.0, "d0": 0.5}})
    pipeline = Pipeline(index, reranker, candidates=2)
    [(query_id, ranking)] = rerank_run(pipeline, run, {"q": "the cat sat"})
    assert query_id == "q" and ranking.depth == 2
    assert {hit.doc_id for hit in ranking.hits[:2]} == {"d1", "d2"}
    assert [hit.doc_id for hit in ranking.hits[2:]] == ["d3", "d0"]


def test_nothing_found_is_no_error(index: Index, reranker: Reranker) -> None:
    assert Pipeline(index, reranker)("zebra", k=3, budget_ms=50).hits == ()


@pytest.mark.parametrize("budget", [0, -1, float("nan")])
def test_budgets_that_make_no_sense(index: Index, reranker: Reranker, budget: float) -> None:
    with pytest.raises(InputError, match="more than 0"):
        Pipeline(index, reranker, budget_ms=budget)
    with pytest.raises(InputError, match="more than 0"):
        Pipeline(index, reranker)("cat", budget_ms=budget)


def test_a_changed_index_is_taken_up_before_its_store(tmp_path: Path) -> None:
    saved = tiny_model()
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(5))], tmp_path / "i")
    encode_index(index, saved)
    save_model(tmp_path / "m", saved.model, saved.usage, saved.vocabulary, "")
    pipeline = Pipeline.open(tmp_path / "i", tmp_path / "m")
    assert pipeline.store is not None
    writer = Index(tmp_path / "i")
    writer.add([Doc("new", "the cat sat on the warm mat")])
    assert "new" in {hit.doc_id for hit in pipeline.follow(writer)("cat", k=9)}
    assert len(pipeline("cat", k=9)) == 5  # still served as it was
    encode_index(writer, saved)
    assert pipeline.follow(writer)("cat", k=9).num_encoded == 0


def test_texts_without_an_index(reranker: Reranker) -> None:
    some = texts(12)
    ranking = rank("the cat sat", some, model=reranker, k=4)
    own = reranker.scores("the cat sat", some).values
    assert [hit.doc_id for hit in ranking] == np.argsort(-own)[:4].tolist()
    assert ranking.depth == 12
    assert rank("cat", [], model=reranker).hits == ()


def test_the_first_stage_is_the_models_own_unless_another_is_named(tmp_path: Path) -> None:
    saved = tiny_model()
    saved = replace(saved, usage=replace(saved.usage, first_stage="ql(mu=50)"))
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(9))], tmp_path / "i")
    save_model(tmp_path / "m", saved.model, saved.usage, saved.vocabulary, "")
    own = Pipeline.open(tmp_path / "i", tmp_path / "m")
    for pipeline in (own, Pipeline(index, Reranker(saved))):
        assert pipeline.method == "ql(mu=50)"
    expected = {hit.doc_id: hit.score for hit in index.search("the cat", 9, "ql(mu=50)")}
    assert {hit.doc_id: hit.first_score for hit in own("the cat", 9)} == expected
    assert Pipeline.open(tmp_path / "i", tmp_path / "m", method="bm25").method == "bm25"
    assert Pipeline.open(tmp_path / "i", None).method == "bm25"


def test_a_models_own_store_is_used_unless_told_otherwise(tmp_path: Path) -> None:
    saved = tiny_model()
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(5))], tmp_path / "i")
    encode_index(index, saved, dtype="int8")
    found = Pipeline(index, Reranker(saved)).store
    assert found is not None and found.dtype == "int8"
    assert Pipeline(index, Reranker(saved), use_store=False).store is None


def test_the_first_stage_comes_first_and_then_the_final_ranking(
    index: Index, reranker: Reranker
) -> None:
    pipeline = Pipeline(index, reranker)
    first, final = pipeline.stream("the cat sat", 5)
    assert [hit[:3] for hit in first] == [hit[:3] for hit in index.search("the cat sat", 5)]
    assert (first.depth, first.depths, set(first.timing)) == (0, (), {"first_stage", "total"})
    assert final.hits == pipeline("the cat sat", 5).hits and final.depths == (40,)
    assert {hit.stage for hit in first} == {0} and {hit.stage for hit in final} == {1}
    [alone] = Pipeline(index).stream("the cat sat", 5)
    assert alone.hits == first.hits


def test_a_late_query_has_the_first_stages_ranking(index: Index, reranker: Reranker) -> None:
    pipeline = Pipeline(index, reranker, calibrate=False)
    *_, final = pipeline.stream("the cat sat", 5, deadline=Deadline(now, now() - 1))
    assert [hit[:3] for hit in final] == [hit[:3] for hit in index.search("the cat sat", 5)]
    assert final.depth == 0 and "scoring" not in final.timing


def test_the_hop_has_one_name(index: Index) -> None:
    assert list(index.search("cat").timing) == ["first_stage"]
    assert list(Pipeline(index)("cat").timing) == ["first_stage", "total"]


def test_ties_of_a_run_are_ordered_as_they_are_measured(index: Index, reranker: Reranker) -> None:
    run = Run.from_dict({"q": {"d1": 5.0, "d3": 5.0, "d2": 9.0, "d0": 5.0}})
    [(_, ranking)] = rerank_run(Pipeline(index, reranker), run, {"q": "the cat sat"})
    ordered = sorted(ranking, key=lambda hit: hit.first_rank or 0)
    assert [hit.doc_id for hit in ordered] == ["d2", "d3", "d1", "d0"]


def test_a_ranking_is_one_kind_of_json(index: Index, reranker: Reranker) -> None:
    ranking = Pipeline(index, reranker, candidates=3)("the cat sat", k=5)
    plain = ranking.to_json(lambda hit: {"title": hit.doc_id.upper()})
    assert list(plain) == [
        "query",
        "depth",
        "found",
        "cut_short",
        "num_encoded",
        "truncated",
        "timing_ms",
        "stages",
        "hits",
    ]
    assert [stage["name"] for stage in plain["stages"]] == [
        *("first_stage", "query", "scoring", "sorting")
    ]
    assert [stage.get("documents") for stage in plain["stages"]] == [None, None, 3, None]
    assert [hit["reranked"] for hit in plain["hits"]] == [True, True, True, False, False]
    assert plain["hits"][0]["title"] == ranking.hits[0].doc_id.upper()
