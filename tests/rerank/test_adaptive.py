"""Neighbours of the best candidates are ranked with them, in time, and the same everywhere."""

import warnings

import numpy as np
import pytest
from step_clock import StepClock
from test_pipeline import texts, tiny_model

from glassrank.cluster import LocalShards, ShardedIndex, ShardedPipeline
from glassrank.embeddings import Store, encode_index
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker, adaptive, scheduler
from glassrank.types import Doc

QUERY = "bird sat"
COUNT = 120
DOCS = [
    Doc(f"d{n:03}", text if n % 3 else text.replace("bird", "sea"), metadata={"even": n % 2 == 0})
    for n, text in enumerate(texts(COUNT))
]


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker(tiny_model(), exact=True)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, reranker: Reranker) -> Index:
    index = Index.build(DOCS[:80], tmp_path_factory.mktemp("adaptive") / "index")
    index.add(DOCS[80:])
    encode_index(index, reranker.saved, dtype="float32", graph=True)
    index.delete(["d007", "d090"])
    return index


@pytest.fixture(autouse=True)
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "FIRST_ROUND", 4)
    monkeypatch.setattr(adaptive, "BEST", 3)


def make(index: Index, reranker: Reranker, **settings: object) -> Pipeline:
    plain = {"first_stage": "bm25", "adaptive": True, "candidates": 10, "calibrate": False}
    return Pipeline(index, reranker, **{**plain, **settings})  # type: ignore[arg-type]


def plain_ranking(index: Index, reranker: Reranker, candidates: int) -> list[str]:
    """Round after round, with lists and sets."""
    store = Store.find(index, reranker.model)
    assert store is not None
    snapshot = index.snapshot
    by_terms = dict(zip(*index.top_k([QUERY], COUNT)[0][:2], strict=True))
    size = 4
    first = list(by_terms)  # of which those beyond the depth only come as neighbours
    docs, waiting = first[:size], first[size:candidates]
    scores: dict[int, float] = {}
    known = list(first)
    while docs:
        given = [by_terms.get(doc, 0.0) for doc in docs]
        texts = [snapshot.doc(doc) for doc in docs]
        scores |= zip(docs, reranker.scores(QUERY, texts, given).values.tolist(), strict=True)
        best = sorted(scores, key=lambda doc: (-scores[doc], known.index(doc)))[:3]
        near = [n for row in store.neighbours(snapshot, np.array(best)).tolist() for n in row]
        fresh = [n for n in dict.fromkeys(near) if n >= 0 and n not in scores]
        fresh = [n for n in fresh if snapshot.doc_id(n) not in ("d007", "d090")][:size]
        known += [n for n in fresh if n not in known]
        waiting = [n for n in waiting if n not in fresh]
        docs, waiting = [*fresh, *waiting[:size]], waiting[size:]
        size *= 2
    ranked = sorted(scores, key=lambda doc: (-scores[doc], known.index(doc)))
    return [snapshot.doc_id(doc) for doc in ranked]


def test_rounds_bring_in_the_neighbours_of_the_best(index: Index, reranker: Reranker) -> None:
    ranking = make(index, reranker, regularization=0.0)(QUERY, k=COUNT)
    ids = [hit.doc_id for hit in ranking]
    expected = plain_ranking(index, reranker, 10)
    assert ids[: ranking.depth] == expected and not ranking.cut_short
    assert 20 < ranking.depth <= ranking.found
    store = Store.find(index, reranker.model)
    assert store is not None
    for hit in ranking:
        if hit.found_by == ("graph",):
            assert hit.rank <= ranking.depth
            parent = np.array([index.snapshot.find(hit.neighbour_of)])
            assert index.snapshot.find(hit.doc_id) in store.neighbours(index.snapshot, parent)
            assert hit.neighbour_of in ids and hit.first_rank is None
        else:
            assert hit.found_by == ("bm25",) and hit.neighbour_of is None
    assert sum(hit.found_by == ("graph",) for hit in ranking) > 5


def test_filters_hold_for_neighbours(index: Index, reranker: Reranker) -> None:
    ranking = make(index, reranker)(QUERY, k=COUNT, where={"even": True})
    assert all(int(hit.doc_id[1:]) % 2 == 0 for hit in ranking)
    assert any(hit.found_by == ("graph",) for hit in ranking)


@pytest.mark.parametrize("first_stage", ["bm25", "dense", "hybrid"])
@pytest.mark.parametrize("count", [1, 2])
def test_shards_rank_the_same(
    index: Index, reranker: Reranker, first_stage: str, count: int
) -> None:
    settings = {"first_stage": first_stage, "adaptive": True, "candidates": 10, "calibrate": False}
    expected = make(index, reranker, first_stage=first_stage)(QUERY, k=COUNT)
    sharded = ShardedIndex(index.path, LocalShards(count, [reranker]))
    ranking = ShardedPipeline(sharded, reranker, **settings)(QUERY, k=COUNT)
    assert ranking.hits == expected.hits and ranking.depths == expected.depths


def test_a_late_round_ends_in_time(index: Index, reranker: Reranker) -> None:
    """Whatever there is no time for is below what was scored, and nobody is there twice."""
    search = make(index, reranker, clock=StepClock(), calibrate=True)
    depths = set()
    for budget_ms in (12, 16, 20, 25, 30, 50, 1000):
        with warnings.catch_warnings(action="ignore"):  # of nothing that was reached
            ranking = search(QUERY, k=COUNT, budget_ms=budget_ms)
        ids = [hit.doc_id for hit in ranking]
        assert len(ids) == len(set(ids))
        scores = [hit.score for hit in ranking]
        assert scores == sorted(scores, reverse=True)
        assert all((hit.stage == 1) == (hit.rank <= ranking.depth) for hit in ranking)
        depths.add(ranking.depth)
    assert len(depths) > 2 and max(depths) > 20


def test_it_can_be_left_out(index: Index, reranker: Reranker) -> None:
    assert make(index, reranker, adaptive=False)(QUERY).depth == 10
    assert make(index, reranker, adaptive=None)(QUERY).depth == 10  # bm25 was asked for
    assert make(index, reranker, adaptive=None, first_stage=None)(QUERY).depth > 10
