"""Candidates by vectors and by terms: found as a plain search finds them, ranked as any others."""

from pathlib import Path

import numpy as np
import pytest
from test_pipeline import texts, tiny_model

from glassrank.embeddings import Store, encode_index
from glassrank.embeddings.doc_vectors import get_query_vector
from glassrank.errors import InputError
from glassrank.explanations import explain
from glassrank.index import Index
from glassrank.rerank import CostModel, Pipeline, Reranker
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
    """Of each document's first embedding with the query's, one by one."""
    store = Store.find(index, reranker.model)
    assert store is not None
    query = get_query_vector(reranker.encode_query(QUERY))
    found = {}
    for doc in index.docs():
        number = np.array([index.snapshot.find(doc.doc_id)])
        for located in store.locate(index.snapshot, number):
            rows = located.part.passage_rows(located.first)
            vector = store.read_embeddings(located.part, *rows).vectors[0, 0].numpy()
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


def test_both_are_fused_by_reciprocal_ranks(index: Index, reranker: Reranker) -> None:
    lists = [
        Pipeline(index, reranker, first_stage=name, calibrate=False).top_k(QUERY, 8).docs.tolist()
        for name in ("bm25", "dense")
    ]
    top = Pipeline(index, reranker, first_stage="hybrid", calibrate=False).top_k(QUERY, 8)
    expected: dict[int, float] = {}
    for docs in lists:
        for rank, doc in enumerate(docs, 1):
            expected[doc] = expected.get(doc, 0.0) + 1 / (60 + rank)
    best = sorted(expected, key=lambda doc: -expected[doc])[:8]  # stable: first by terms
    assert top.docs.tolist() == best
    assert top.fused == pytest.approx([expected[doc] for doc in best])
    assert top.found_by.tolist() == [(d in lists[0]) + 2 * (d in lists[1]) for d in best]
    assert 2 in top.found_by.tolist()
    own = dict(zip(*index.top_k([QUERY], 8)[0][:2], strict=True))
    assert top.scores.tolist() == [own.get(doc, 0.0) for doc in best]


def test_what_is_found_by_vectors_is_ranked_and_explained(index: Index, reranker: Reranker) -> None:
    search = Pipeline(index, reranker, first_stage="hybrid", candidates=20, calibrate=False)
    hits = search(QUERY, k=20).hits
    ways = {("bm25",), ("dense",), ("bm25", "dense"), ("graph",)}
    assert {hit.found_by for hit in hits} == ways
    by_terms = {hit.doc_id: hit.score for hit in index.search(QUERY, 20)}
    for hit in hits:
        assert hit.first_score == pytest.approx(by_terms.get(hit.doc_id, 0.0))
        own = reranker.scores(QUERY, [index.doc(hit.doc_id)], [hit.first_score]).values
        assert hit.score == pytest.approx(float(own[0]), abs=1e-4)
        for asked in (hit, hit.doc_id):
            assert explain(search, QUERY, asked).score == pytest.approx(hit.score, abs=1e-4)


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
