"""Hits of a pipeline: what is explained is the score they were ranked with."""

from pathlib import Path

import pytest
from explain_cases import reranker, small_ranker
from subword_cases import make_subword_ranker, make_subword_reranker

import glassrank
from glassrank.embeddings import Store, encode_index
from glassrank.errors import InputError
from glassrank.explanations import ExplanationPair
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker
from glassrank.types import Doc

TEXTS = ("androgen receptor binds", "the receptor of the cell is a protein", "androgen therapy")


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("tk", "int8"),
        ("tk", "int3"),
        ("tk", ""),
        ("mores", "int8"),
        ("mores", "int3"),
        ("mores", ""),
        ("bert", ""),
    ],
)
def test_hits_are_explained_by_the_scores_they_were_ranked_with(
    tmp_path: Path, name: str, stored: str
) -> None:
    """From a store of rounded words, and live."""
    model = small_ranker("tk") if name == "tk" else make_subword_ranker(name)
    model.mix_first_stage(0.3)
    saved = (reranker(model) if name == "tk" else make_subword_reranker(model)).saved
    index = Index.build([Doc(str(n), text) for n, text in enumerate(TEXTS)], tmp_path / "index")
    store = None
    if stored:
        encode_index(index, saved, tmp_path / "store", stored)
        store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    pipeline = Pipeline(index, Reranker(saved), store=store)
    hits = pipeline("androgen receptor").hits
    assert len(hits) == 3
    for hit in hits:
        found = glassrank.explain(pipeline, "androgen receptor", hit)
        assert found.score == pytest.approx(hit.score, rel=1e-4, abs=1e-5)
    assert isinstance(glassrank.explain(pipeline, "androgen receptor", *hits[:2]), ExplanationPair)
    with pytest.raises(InputError, match="one hit or two"):
        glassrank.explain(pipeline, "androgen receptor")
