"""Candidates by vectors and by terms: found as a plain search finds them, ranked as any others."""

from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
from test_pipeline import texts, tiny_model

from glassrank.deadline import Deadline
from glassrank.embeddings import Store, encode_index
from glassrank.embeddings.doc_vectors import get_query_vector
from glassrank.errors import InputError
from glassrank.explanations import explain
from glassrank.index import Index
from glassrank.index.search import TopK
from glassrank.rerank import CostModel, Pipeline, Reranker
from glassrank.rerank.cascade import Cascade, EncodedQuery
from glassrank.rerank.hybrid import fuse
from glassrank.rerank.stages import IndexStage
from glassrank.types import Doc

QUERY = "the bird sat"
DOCS = [
    Doc(f"d{n:02}", text, metadata={"even": n % 2 == 0})
    for n, text in enumerate([*texts(40), *(text.replace("cat", "sea") for text in texts(20))])
]


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker(tiny_model(), exact=True)


@pytest.fixture
def index(tmp_path: Path, reranker: Reranker) -> Index:
    """Of three segments, one of which was merged after it was encoded; some are deleted."""
    index = Index.build(DOCS[:40], tmp_path / "index")
    index.add(DOCS[40:48])
    encode_index(index, reranker.saved, dtype="float32", graph=True)
    index.delete(["d03", "d41"])
    return index


def cosines(index: Index, reranker: Reranker) -> dict[str, float]:
    """Of each document's first embedding and the mean of all, one by one."""
    store = Store.find(index, reranker.model)
    assert store is not None
    query = get_query_vector(reranker.encode_query(QUERY))
    found = {}
    for doc in index.docs():
        number = np.array([index.snapshot.find(doc.doc_id)])
        for located in store.locate(index.snapshot, number):
            rows = located.part.passage_rows(located.first + np.arange(located.counts[0]))
            embeddings = store.read_embeddings(located.part, *rows)
            tokens = embeddings.vectors.numpy()[embeddings.mask.numpy() > 0]
            first, mean = tokens[0], tokens.mean(0)
            vector = first / np.linalg.norm(first) + mean / np.linalg.norm(mean)
            found[doc.doc_id] = float(vector @ query / np.linalg.norm(vector))
    return found


@pytest.mark.parametrize("changed", [False, True])
def test_the_nearest_are_found(index: Index, reranker: Reranker, changed: bool) -> None:
    if changed:  # documents have moved to another segment since they were encoded
        index.merge()
    search = Pipeline(index, reranker, first_stage="dense", calibrate=False)
    expected = cosines(index, reranker)
    top = search.top_k(QUERY, 12)
    ids = [index.snapshot.doc_id(number) for number in top.docs.tolist()]
    assert len(set(ids)) == 12 and not {"d03", "d41"} & set(ids)
    best = sorted(expected.values(), reverse=True)
    assert [expected[doc_id] for doc_id in ids] == pytest.approx(best[:12], abs=0.02)  # int8
    even = search.top_k(QUERY, 50, where={"even": True})
    found = {index.snapshot.doc_id(number) for number in even.docs.tolist()}
    assert found == {doc_id for doc_id in expected if int(doc_id[1:]) % 2 == 0}


def test_both_are_fused_by_z_scores(index: Index, reranker: Reranker) -> None:
    by_terms = dict(zip(*index.top_k([QUERY], 8)[0][:2], strict=True))
    search = Pipeline(index, reranker, first_stage="hybrid", calibrate=False)
    near = search.stages[0].nearest(reranker.encode_query(QUERY), 8, index.snapshot)
    by_vector = dict(zip(near.docs.tolist(), near.scores.tolist(), strict=True))
    expected: dict[int, float] = {}
    for scores in (by_terms, by_vector):
        given = [*scores.values(), min(scores.values())]
        for doc in {**by_terms, **by_vector}:
            score = scores.get(doc, min(given))
            z_score = (score - np.mean(given)) / np.std(given)
            expected[doc] = expected.get(doc, 0.0) + z_score
    top = fuse(index.top_k([QUERY], 8)[0], near, 8)
    found = dict(zip(top.docs.tolist(), top.fused.tolist(), strict=True))
    assert found == pytest.approx(expected, abs=1e-5)
    assert top.fused.tolist() == sorted(top.fused.tolist(), reverse=True)
    assert search.top_k(QUERY, 8).docs.tolist() == top.docs.tolist()[:8]
    kinds = [(doc in by_terms) + 2 * (doc in by_vector) for doc in top.docs.tolist()]
    assert top.found_by.tolist() == kinds and {1, 2, 3} == set(kinds)
    assert top.scores.tolist() == [by_terms.get(doc, 0.0) for doc in top.docs.tolist()]


def test_a_single_match_by_terms_counts() -> None:
    """What no list has is as bad as its worst, and by terms that may be nothing at all."""
    vectors = TopK(np.arange(5), np.linspace(0.9, 0.5, 5, dtype=np.float32))
    one = fuse(TopK(np.array([7]), np.array([3.0], np.float32)), vectors, 5)
    assert one.docs.tolist() == [0, 1, 7, 2, 3, 4]
    nothing = fuse(TopK(np.empty(0, np.int64), np.empty(0, np.float32)), vectors, 5)
    assert nothing.docs.tolist() == [0, 1, 2, 3, 4]


def test_what_is_found_by_vectors_is_ranked_and_explained(index: Index, reranker: Reranker) -> None:
    search = Pipeline(index, reranker, first_stage="hybrid", candidates=32, calibrate=False)
    query = "bird"
    hits = search(query, k=32).hits
    ways = {("bm25",), ("dense",), ("bm25", "dense"), ("graph",)}
    assert {hit.found_by for hit in hits} == ways
    by_terms = {hit.doc_id: hit.score for hit in index.search(query, 32)}
    for hit in hits:
        assert hit.first_score == pytest.approx(by_terms.get(hit.doc_id, 0.0))
        own = reranker.scores(query, [index.doc(hit.doc_id)], [hit.first_score]).values
        assert hit.score == pytest.approx(float(own[0]) + hit.regularization, abs=1e-4)
        for asked in (hit, hit.doc_id):
            explanation = explain(search, query, asked)
            assert explanation.score == pytest.approx(hit.score, abs=1e-4)
            if asked is hit or (hit.first_rank or 33) <= 32:  # else it was brought in
                assert f"Found {hit.found}." in explanation.notes


def test_a_store_without_vectors_works_as_before(tmp_path: Path, reranker: Reranker) -> None:
    index = Index.build(DOCS, tmp_path / "index")
    encode_index(index, reranker.saved, dtype="int8")
    before = Pipeline(index, reranker, calibrate=False)
    assert before.retrieval == "bm25"
    assert {hit.found_by for hit in before(QUERY)} == {("bm25",)}
    for name in ("dense", "hybrid"):
        with pytest.raises(InputError, match="has vectors to find documents by; make them with"):
            Pipeline(index, reranker, first_stage=name, calibrate=False)
    with pytest.raises(InputError, match="unknown first stage 'bm26'"):
        Pipeline(index, reranker, first_stage="bm26", calibrate=False)
    report = encode_index(index, reranker.saved, dtype="int8", graph=True)
    assert (report.encoded, report.reused) == (0, 0)
    assert Pipeline(index, reranker, calibrate=False).retrieval == "hybrid"


def test_without_time_for_the_query_terms_alone_find(index: Index, reranker: Reranker) -> None:
    search = Pipeline(index, reranker, first_stage="hybrid")
    search.stages[0].query_cost = CostModel(base=1e3)
    with pytest.warns(match="nothing could be re-ranked"):
        ranking = search(QUERY, budget_ms=5)
    assert {hit.found_by for hit in ranking} == {("bm25",)}


def test_a_query_without_words_finds_nothing(index: Index, reranker: Reranker) -> None:
    assert not Pipeline(index, reranker, calibrate=False)(" ").hits


def test_opening_runs_all_that_a_query_runs(
    index: Index, reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compiled or numbered once must not be in the first query's budget."""
    ran = []
    for name in ("nearest", "neighbours"):
        plain = getattr(Store, name)
        monkeypatch.setattr(
            Store, name, lambda *given, n=name, p=plain: (ran.append(n), p(*given))[1]
        )
    Pipeline(index, reranker)
    assert set(ran) == {"nearest", "neighbours"}


def test_vectors_are_left_out_where_there_is_no_time_for_them(
    index: Index, reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million documents, vectors take longer than BM25, whatever the budget is."""
    nearest = Store.nearest

    def slow(*arguments: Any) -> TopK:
        sleep(0.06)
        return nearest(*arguments)

    monkeypatch.setattr(Store, "nearest", slow)
    search = Pipeline(index, reranker)
    in_time, at_leisure = search(QUERY, 50, budget_ms=60), search(QUERY, 50)
    assert "dense" not in {name for hit in in_time for name in hit.found_by}
    assert "dense" in {name for hit in at_leisure for name in hit.found_by}


@pytest.mark.parametrize(("query_ms", "finds"), [(900.0, 0), (600.0, 1)])
def test_the_model_that_is_to_rank_finds_by_vectors(
    index: Index, reranker: Reranker, monkeypatch: pytest.MonkeyPatch, query_ms: float, finds: int
) -> None:
    """Otherwise a small budget would go into a query that only the other model of a cascade needs,
    and the one that is to rank would score little or nothing."""
    slow = Reranker(tiny_model(seed=1), exact=True)
    encode_index(index, slow.saved, dtype="float32", graph=True)
    search = Pipeline(index, [reranker, slow])
    search.stages[1].query_cost = CostModel(base=query_ms)
    asked = []
    nearest = IndexStage.nearest

    def noted(stage: IndexStage, *arguments: Any) -> TopK:
        asked.append(search.stages.index(stage))
        return nearest(stage, *arguments)

    monkeypatch.setattr(IndexStage, "nearest", noted)
    search(QUERY, budget_ms=800)
    search(QUERY)
    assert asked == [finds, 1]


def test_a_query_that_is_encoded_already_is_not_planned_for_again(
    index: Index, reranker: Reranker
) -> None:
    """The best model finds documents by its vectors, so the time for its query is spent before
    the models share what is left."""
    slow = Reranker(tiny_model(seed=1), exact=True)
    encode_index(index, slow.saved, dtype="float32", graph=True)
    search = Pipeline(index, [reranker, slow])
    last = search.stages[1]
    last.query_cost = CostModel(base=200.0)
    encoded = EncodedQuery(last, slow.encode_query(QUERY), 200.0)
    cascade = Cascade(search.top_k(QUERY, 50), encoded=encoded)
    cascade.rerank(QUERY, search.stages, [50, 50], Deadline.after(150), search.scheduler)
    assert [depth > 0 for depth in cascade.depths] == [False, True]
