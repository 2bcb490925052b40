"""Similar documents draw each other's scores together: by the formula, in pipelines, explained."""

import statistics
from pathlib import Path

import numpy as np
import pytest
from test_pipeline import texts, tiny_model

from glassrank.embeddings import encode_index
from glassrank.errors import InputError
from glassrank.explanations import Explanation, explain
from glassrank.explanations.structure import SIMILAR_DOCS
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker
from glassrank.rerank.regularization import pick_best, regularize
from glassrank.types import Doc, Hit

QUERY = "the bird sat"
DOCS = [Doc(f"d{n:03}", text) for n, text in enumerate(texts(120))]


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker(tiny_model(), exact=True)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, reranker: Reranker) -> Index:
    """Of two segments, with some documents that are in no store."""
    index = Index.build(DOCS[:90], tmp_path_factory.mktemp("regularization") / "index")
    index.add(DOCS[90:110])
    encode_index(index, reranker.saved, dtype="float32", graph=True)
    index.add(DOCS[110:])
    return index


def by_hand(scores: list[float], vectors: list[np.ndarray], weight: float) -> list[float]:
    """One document after another."""
    changes = []
    for i, own in enumerate(vectors):
        near = []
        for j, other in enumerate(vectors):
            lengths = np.linalg.norm(own) * np.linalg.norm(other)
            if i != j and lengths:
                near.append((max(0.0, float(own @ other / lengths)) ** 8, scores[j]))
        near = sorted(near, reverse=True)[:7]
        total = sum(share for share, _ in near)
        mean = sum(share * score for share, score in near) / total if total else scores[i]
        most = 0.75 * statistics.pstdev(scores)
        share = min(1, (len(scores) - 1) / 7)
        changes.append(share * weight * max(-most, min(most, mean - scores[i])))
    return changes


@pytest.mark.parametrize("count", [1, 2, 7, 8, 40])
def test_it_is_a_mean_over_the_nearest(count: int) -> None:
    rng = np.random.default_rng(count)
    vectors = rng.normal(size=(count, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = rng.normal(size=count) * 5
    is_stored = rng.random(count) < 0.8
    given = list(vectors * is_stored[:, None])
    expected = by_hand(scores.tolist(), given, 0.3)
    found = regularize(scores, vectors * is_stored[:, None], 0.3)
    assert found == pytest.approx(expected, abs=1e-5)
    assert not found[~is_stored].any()
    moved = scores + found
    assert scores.min() - 1e-5 <= moved.min() and moved.max() <= scores.max() + 1e-5


def test_two_that_are_alike_do_not_change_places() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    scores = np.array([3.3, 2.2, -5.0])
    moved = scores + regularize(scores, vectors)
    assert 0.5 < moved[0] - moved[1] < 1.1


def test_the_best_are_compared() -> None:
    scores = np.arange(200.0)
    assert sorted(pick_best(scores).tolist()) == list(range(136, 200))


def hits_of(index: Index, reranker: Reranker, weight: float | None) -> dict[str, Hit]:
    search = Pipeline(index, reranker, first_stage="bm25", regularization=weight, calibrate=False)
    return {hit.doc_id: hit for hit in search(QUERY, k=len(DOCS))}


def test_scores_are_the_models_own_and_what_similar_documents_add(
    index: Index, reranker: Reranker
) -> None:
    own, found = hits_of(index, reranker, 0.0), hits_of(index, reranker, None)
    assert {hit.regularization for hit in own.values()} == {0.0}
    changed = [doc_id for doc_id, hit in found.items() if hit.regularization]
    best = sorted(own, key=lambda doc_id: -own[doc_id].score)[:64]
    stored = {doc.doc_id for doc in DOCS[:110]}
    assert len(changed) > 30 and set(changed) <= set(best) & stored
    for doc_id, hit in found.items():
        assert hit.score - hit.regularization == pytest.approx(own[doc_id].score, abs=1e-5)
        assert hit.probability == own[doc_id].probability
    assert list(found)[:64] != best and set(list(found)[:64]) == set(best)
    assert list(found)[64:] == list(own)[64:]
    ranked = [hit.score for hit in found.values()]
    assert ranked == sorted(ranked, reverse=True)


def test_a_store_without_vectors_changes_nothing(tmp_path: Path, reranker: Reranker) -> None:
    index = Index.build(DOCS, tmp_path / "index")
    encode_index(index, reranker.saved, dtype="float32")
    found = hits_of(index, reranker, 1.0)
    assert {hit.regularization for hit in found.values()} == {0.0}


@pytest.mark.parametrize("by_id", [False, True])
def test_an_explanation_has_it_as_a_part(index: Index, reranker: Reranker, by_id: bool) -> None:
    search = Pipeline(index, reranker, first_stage="bm25", calibrate=False)
    hits = [hit for hit in search(QUERY, k=12) if hit.regularization]
    assert len(hits) > 5
    for hit in hits:
        explanation = explain(search, QUERY, hit.doc_id if by_id else hit)
        assert isinstance(explanation, Explanation)
        parts = {part.name: part.value for part in explanation.parts.children}
        assert parts[SIMILAR_DOCS] == pytest.approx(hit.regularization, abs=1e-6)
        assert explanation.score == pytest.approx(hit.score, abs=1e-4)
        assert explanation.parts.value == pytest.approx(hit.score, abs=1e-4)
        shares = [mark.share for mark in explanation.marks]
        rest = [part.value for part in explanation.rest]
        assert sum([*shares, *rest]) == pytest.approx(hit.score, abs=1e-4)
        how = "higher" if hit.regularization > 0 else "lower"
        assert any(
            note.startswith(f"Candidates that are similar to it have {how} scores")
            for note in explanation.notes
        )
        assert Explanation.from_json(explanation.to_json()) == explanation
        assert "Candidates that are similar" in str(explanation)
        against = explanation.against
        assert against is not None
        assert against.parts.value == pytest.approx(hit.score - against.mean, abs=1e-4)
        assert SIMILAR_DOCS in [part.name for part in against.parts.children]
        assert against.above_rival is not None
        assert (against.above_rival.value > 0) == (hit.rank == 1)
    pair = explain(search, QUERY, hits[0], hits[1])
    assert pair.parts is not None
    assert pair.parts.value == pytest.approx(hits[0].score - hits[1].score, abs=1e-4)


def test_what_is_no_weight_is_refused(index: Index, reranker: Reranker) -> None:
    with pytest.raises(InputError, match=r"regularization must be from 0 to 1, not -0.1"):
        Pipeline(index, reranker, regularization=-0.1, calibrate=False)
