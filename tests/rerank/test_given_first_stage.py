"""Candidates of a first stage of somebody else's, documents and stores of an index of ours."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from test_pipeline import texts, tiny_model

from glassrank.embeddings import encode_index
from glassrank.errors import InputError
from glassrank.explanations import explain
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker
from glassrank.types import Doc

DOCS = [Doc(f"d{n}", text) for n, text in enumerate(texts(40))]
QUERY = "the cat sat"


class Given:
    """These ids for every query, with high scores."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = list(ids)

    def search(self, query: str, k: int) -> tuple[list[str], list[float]]:
        return self.ids[:k], [1000.0 - n for n in range(len(self.ids[:k]))]


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker(tiny_model(), exact=True)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.build(DOCS, tmp_path / "index")


@pytest.mark.parametrize("stored", [True, False])
def test_its_candidates_are_ranked_without_its_scores(
    index: Index, reranker: Reranker, stored: bool
) -> None:
    if stored:
        encode_index(index, reranker.saved, dtype="float32")
    ids = [f"d{n}" for n in range(39, 9, -1)]
    search = Pipeline(index, reranker, first_stage=Given(ids))
    ranking = search(QUERY, k=40)
    assert (search.store is not None) == stored and ranking.num_encoded == (0 if stored else 30)
    own = reranker.scores(QUERY, [index.doc(doc_id).text for doc_id in ids]).values
    expected = dict(zip(ids, own.tolist(), strict=True))
    assert {hit.doc_id: hit.score for hit in ranking} == pytest.approx(expected, abs=1e-4)
    first = [hit.doc_id for hit in sorted(ranking, key=lambda hit: hit.first_rank or 0)]
    assert first == ids and max(hit.first_score or 0 for hit in ranking) == 1000


def test_its_hits_are_explained_as_they_were_ranked(index: Index, reranker: Reranker) -> None:
    search = Pipeline(index, reranker, first_stage=Given(["d5", "d3", "d1"]))
    for hit in search(QUERY):
        explanation = explain(search, QUERY, hit)
        assert explanation.score == pytest.approx(hit.score, abs=1e-4)
        assert not any("the list it has the score" in note for note in explanation.notes)


def test_a_method_of_ours_may_be_asked_for(index: Index, reranker: Reranker) -> None:
    search = Pipeline(index, reranker, first_stage=Given(["d5"]))
    assert len(search(QUERY, method="bm25")) > 1
    assert np.array_equal(
        search.top_k(QUERY, 5, method="ql").docs, index.top_k([QUERY], 5, "ql")[0].docs
    )


def test_it_stays_when_the_index_is_followed(index: Index, reranker: Reranker) -> None:
    search = Pipeline(index, reranker, first_stage=Given(["d5", "new"]))
    with pytest.raises(InputError, match="has no document 'new', which the first stage found"):
        search(QUERY)
    index.add([Doc("new", "a cat")])
    followed = search.follow(index)
    ranking = followed(QUERY)
    assert {hit.doc_id for hit in ranking} == {"d5", "new"}
    alone = reranker.scores(QUERY, ["a cat"]).values[0]
    assert next(hit for hit in ranking if hit.doc_id == "new").score == pytest.approx(
        alone, abs=1e-4
    )


def test_it_knows_no_filters(index: Index, reranker: Reranker) -> None:
    with pytest.raises(InputError, match="cannot filter"):
        Pipeline(index, reranker, first_stage=Given(["d5"]))(QUERY, where={"lang": "en"})
