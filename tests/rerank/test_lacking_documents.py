"""Documents that a store lacks are encoded live, in time, and the answer says how many."""

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from step_clock import StepClock
from test_pipeline import texts, tiny_model

from glassrank.embeddings import Store, encode_index
from glassrank.errors import InputError
from glassrank.explanations import explain
from glassrank.index import Index
from glassrank.models.io.model_folder import SavedModel
from glassrank.rerank import CostModel, Pipeline, Reranker
from glassrank.rerank.stages import Candidates
from glassrank.types import Doc

QUERY = "the cat sat"
NEW = [f"the cat sat on the {word} mat" for word in ("warm", "cold", "sea")]


@pytest.fixture
def saved() -> SavedModel:
    return tiny_model()


@pytest.fixture
def index(tmp_path: Path, saved: SavedModel) -> Index:
    """With a store of all its documents."""
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(40))], tmp_path / "i")
    encode_index(index, saved, dtype="float32")
    return index


def exactly(index: Index, saved: SavedModel, *, use_store: bool = True) -> Pipeline:
    return Pipeline(index, Reranker(saved, exact=True), use_store=use_store)


def assert_as_live(index: Index, saved: SavedModel, lacks: int) -> None:
    """The same ranking as if nothing were stored, of which so many were encoded."""
    mixed = exactly(index, saved)
    assert mixed.store is not None and mixed.stages[0].num_missing == lacks
    found, live = mixed(QUERY, 60), exactly(index, saved, use_store=False)(QUERY, 60)
    assert (found.num_encoded, live.num_encoded) == (lacks, live.depth)
    assert found.depth == live.depth == len(index) and not found.cut_short
    scores = {hit.doc_id: hit.score for hit in live}
    for hit in found:
        assert hit.score == pytest.approx(scores[hit.doc_id], abs=1e-4)
        assert hit.stage == 1


def test_added_documents(index: Index, saved: SavedModel) -> None:
    index.add([Doc(f"n{n}", text) for n, text in enumerate(NEW)])
    assert_as_live(index, saved, 3)
    encode_index(index, saved, dtype="float32")
    assert_as_live(index, saved, 0)


def test_replaced_documents_have_their_new_texts(index: Index, saved: SavedModel) -> None:
    index.add([Doc("d3", NEW[0]), Doc("d5", NEW[1])], replace=True)
    assert_as_live(index, saved, 2)


def test_a_merge_needs_nothing(index: Index, saved: SavedModel) -> None:
    index.delete(["d0"])
    index.merge()
    assert_as_live(index, saved, 0)


def test_a_merge_with_new_documents_needs_those(index: Index, saved: SavedModel) -> None:
    index.add([Doc(f"n{n}", text) for n, text in enumerate(NEW)])
    index.merge()
    assert_as_live(index, saved, 3)


def test_an_index_built_again_of_the_same_texts(index: Index, saved: SavedModel) -> None:
    again = Index.build(list(index.docs())[:30], index.path, overwrite=True)
    assert_as_live(again, saved, 0)


def test_a_deleted_document_is_not_lacking(index: Index, saved: SavedModel) -> None:
    index.add([Doc(f"n{n}", text) for n, text in enumerate(NEW)])
    index.delete(["n1"])
    assert_as_live(index, saved, 2)


@pytest.mark.parametrize("use_store", [True, False])
def test_a_run_has_them_too(index: Index, saved: SavedModel, use_store: bool) -> None:
    index.add([Doc("n", NEW[0])])
    first = index.top_k([QUERY], 50)[0]
    found = exactly(index, saved, use_store=use_store).rerank(QUERY, first.docs, first.scores)
    assert "n" in {hit.doc_id for hit in found} and found.depth == 41


def test_what_is_encoded_live_is_explained(index: Index, saved: SavedModel) -> None:
    index.add([Doc("n", NEW[0])])
    pipeline = exactly(index, saved)
    hit = next(hit for hit in pipeline(QUERY, 60) if hit.doc_id == "n")
    assert pipeline.stages[0].read_embeddings("n") is None
    assert explain(pipeline, QUERY, hit).score == pytest.approx(hit.score, abs=1e-4)


def test_a_given_store_of_another_index_is_refused(
    index: Index, saved: SavedModel, tmp_path: Path
) -> None:
    other = Index.build([Doc("other", "the cold sea")], tmp_path / "other")
    store = Store.open(index.path / "stores" / "tk-float32", saved.model)
    with pytest.raises(InputError, match="has not encoded all documents"):
        Pipeline(other, Reranker(saved), store=store)


class Costs(StepClock):
    """Looks at it cost nothing; work does."""

    def __call__(self) -> float:
        return self.time


@pytest.mark.parametrize("budget", [2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 120.0, 1000.0])
def test_both_kinds_have_their_part_of_the_time(
    index: Index, saved: SavedModel, budget: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding a document takes 5 ms, scoring a stored one 0.5 ms."""
    others = [f"{text} bird sea bird" for text in texts(20)]
    index.add([Doc(f"n{n}", text) for n, text in enumerate([*NEW, *others])])
    clock = Costs()
    pipeline = Pipeline(index, Reranker(saved, exact=True), clock=clock, calibrate=False)
    stage = pipeline.stages[0]
    first = index.top_k([QUERY], 100)[0]
    words = stage.reranker.encode_query(QUERY)
    groups = stage.prepare_candidates(Candidates(words, first.docs, first.scores))
    for group, ms in zip(groups, (0.5, 5.0), strict=True):
        original = type(group.scorer).score

        def slowly(self, passages, deadline, original=original, ms=ms):  # type: ignore[no-untyped-def]
            clock.time += ms * len(passages.docs)
            return original(self, passages, deadline)

        monkeypatch.setattr(type(group.scorer), "score", slowly)
        group.scorer.cost = CostModel(0.0, ms)
        group.passages = group.passages._replace(sizes=np.ones(len(group.places)))
    monkeypatch.setattr(stage, "prepare_candidates", lambda *_: groups)
    stage.cost, stage.reranker.cost = (group.scorer.cost for group in groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranking = pipeline(QUERY, 100, budget_ms=budget)
    assert clock.time <= budget
    stored = ranking.depth - ranking.num_encoded
    if budget >= 20:
        assert ranking.num_encoded >= 1 and stored >= 1
        assert ranking.num_encoded * 5 <= budget / 2 or stored == 40  # stored ones are not starved
    if budget == 1000:
        assert (ranking.num_encoded, stored, ranking.cut_short) == (23, 40, False)
    else:
        assert ranking.cut_short
    # Each kind from the top, and what was not reached in the first stage's order below.
    reached = [hit for hit in ranking if hit.ranked_by]
    assert [hit.rank for hit in reached] == list(range(1, ranking.depth + 1))
    rest = [hit.first_rank or 0 for hit in ranking.hits[ranking.depth :]]
    assert rest == sorted(rest)
    assert all(a.score >= b.score for a, b in pairwise(ranking))
    for kind in ("n", "d"):
        ranks = [h.first_rank or 0 for h in reached if h.doc_id.startswith(kind)]
        below = [h.first_rank or 0 for h in ranking[ranking.depth :] if h.doc_id.startswith(kind)]
        assert max(ranks, default=0) < min(below, default=999)
