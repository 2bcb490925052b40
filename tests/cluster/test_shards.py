"""An index in shards answers as one machine does, to the last byte."""

import time
from pathlib import Path

import pytest
from sharded_index import METHODS, QUERIES, build_in_segments, run_bytes, some_docs

from glassrank.cluster import LocalShards, ShardedIndex, ShardedPipeline
from glassrank.embeddings import encode_index
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker, rerank_run
from glassrank.types import Doc, Run

DOCS = some_docs(400)
GONE = [doc.doc_id for doc in DOCS[::9]]


@pytest.fixture(scope="module")
def fast() -> Reranker:
    return Reranker.load("fast")


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory, fast: Reranker) -> tuple[Index, Index]:
    """One segment, and four and a small one; the same documents are deleted of both."""
    folder = tmp_path_factory.mktemp("indexes")
    whole = Index.build(DOCS, folder / "whole")
    parts = build_in_segments(DOCS[:-10], folder / "parts", 4)
    parts.add(DOCS[-10:])
    for index in (whole, parts):
        index.delete(GONE)
        encode_index(index, fast.saved)
    assert len(whole.snapshot.segments) == 1
    assert len(parts.snapshot.segments) == 5
    return whole, parts


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 3, 5])
def test_the_first_stage_is_the_same(
    indexes: tuple[Index, Index], method: str, count: int, tmp_path: Path
) -> None:
    whole, parts = indexes
    sharded = ShardedIndex(parts.path, LocalShards(count))
    assert len(sharded.views) == count
    expected = run_bytes(whole.retrieve(QUERIES, 100, method), tmp_path)
    assert run_bytes(sharded.retrieve(QUERIES, 100, method), tmp_path) == expected
    # Ties are what makes it hard, so there are some, and some of them go across shards.
    scores = whole.retrieve(QUERIES, 100, method).scores
    assert len(set(scores)) < len(scores)


def test_filters_are_the_same(indexes: tuple[Index, Index], tmp_path: Path) -> None:
    whole, parts = indexes
    sharded = ShardedIndex(parts.path, LocalShards(4))
    for where in ({"year": {">=": 2003}}, {"year": [2001, 2002]}):
        expected = run_bytes(whole.retrieve(QUERIES, 100, where=where), tmp_path)
        assert run_bytes(sharded.retrieve(QUERIES, 100, where=where), tmp_path) == expected
    with pytest.raises(InputError, match="yeer"):
        sharded.search("ban", where={"yeer": 1})


@pytest.mark.parametrize("count", [1, 4])
def test_what_is_ranked_again_is_the_same(
    indexes: tuple[Index, Index], fast: Reranker, count: int, tmp_path: Path
) -> None:
    whole, parts = indexes
    one = Pipeline(whole, fast, candidates=50, calibrate=False)
    sharded = ShardedIndex(parts.path, LocalShards(count, [fast]))
    several = ShardedPipeline(sharded, fast, candidates=50, calibrate=False)
    for query in QUERIES:
        expected, ranking = one(query.text, 70), several(query.text, 70)
        assert ranking.hits == expected.hits
        assert ranking.depths == expected.depths == (expected.found,)
        assert expected.found > 50  # with their neighbours
        assert (ranking.shards, ranking.missing) == (count, ())
        assert [hit.doc for hit in ranking[:3]] == [hit.doc for hit in expected[:3]]
    first, texts = whole.retrieve(QUERIES, 60), dict(QUERIES)
    runs = [Run.from_rankings(rerank_run(p, first, texts)) for p in (one, several)]
    assert run_bytes(runs[0], tmp_path) == run_bytes(runs[1], tmp_path)


def test_a_cascade_is_the_same(indexes: tuple[Index, Index], fast: Reranker) -> None:
    whole, parts = indexes
    models = [fast, fast]
    one = Pipeline(whole, models, candidates=50, calibrate=False)
    sharded = ShardedIndex(parts.path, LocalShards(4, models))
    several = ShardedPipeline(sharded, models, candidates=50, calibrate=False)
    assert several(QUERIES[3].text).hits == one(QUERIES[3].text).hits


@pytest.mark.long
def test_a_shard_that_is_late_is_left_out_and_named(
    indexes: tuple[Index, Index], fast: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, parts = indexes
    shards = LocalShards(4, [fast])
    index = ShardedIndex(parts.path, shards)
    settings = {"candidates": 50, "first_stage": "bm25"}
    search = ShardedPipeline(index, fast, **settings, regularization=0)
    whole = search(QUERIES[4].text, 50)
    late = shards.shards[2]
    for call in ("search", "score"):
        answer = getattr(late, call)
        monkeypatch.setattr(late, call, lambda *asked, a=answer: (time.sleep(2), a(*asked))[1])
        ranking = search(QUERIES[4].text, 50, budget_ms=1000)
        monkeypatch.setattr(late, call, answer)
        view = index.views[2]
        assert ranking.shards == 4
        assert ranking.missing == (view.name,)
        assert ranking.to_json()["shards"] == {"answered": 3, "of": 4, "missing": [view.name]}
        held = {index.snapshot.doc_id(view.base + n) for n in range(view.docs)}
        assert held & {hit.doc_id for hit in whole}
        scored = {hit.doc_id: hit.score for hit in ranking if hit.ranked_by}
        assert scored
        assert not scored.keys() & held
        before = {hit.doc_id: hit.score for hit in whole}  # others have the scores they had
        assert all(before.get(doc_id, score) == score for doc_id, score in scored.items())
    search = ShardedPipeline(index, fast, **settings)
    late_vectors = late.doc_vectors
    monkeypatch.setattr(
        late, "doc_vectors", lambda *asked: (time.sleep(2), late_vectors(*asked))[1]
    )
    ranking = search(QUERIES[4].text, 50, budget_ms=1000)
    assert ranking.missing == () and ranking.timing["total"] < 1000
    changed = {hit.doc_id for hit in ranking if hit.regularization}
    assert changed and not changed & held  # it keeps its own scores
    shards.close()
    assert search.index.views


def test_a_changed_index_is_seen_whole_or_not_at_all(tmp_path: Path, fast: Reranker) -> None:
    path = tmp_path / "changing"
    index = build_in_segments(DOCS[:60], path, 3)
    sharded = ShardedIndex(path, LocalShards(3, [fast]))
    before = ShardedPipeline(sharded, fast, calibrate=False)
    old = before("ban ben", 20).hits
    index.add([Doc("new", "ban ben")])
    index.delete([old[0].doc_id])
    assert before("ban ben", 20).hits == old  # as it was when it was opened
    fresh = ShardedIndex(path, sharded.shards)
    after = before.follow(fresh)
    now = after("ban ben", 20).hits
    assert now == Pipeline(index, fast, calibrate=False)("ban ben", 20).hits
    assert {"new"} == {hit.doc_id for hit in now} - {hit.doc_id for hit in old}
    assert before("ban ben", 20).hits == old  # beside it
