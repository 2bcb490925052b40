"""FAISS, and vectors of our models."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassrank as gr
from glassrank.errors import InputError
from glassrank.index.first_stage import Hybrid, IndexFirstStage

faiss = pytest.importorskip("faiss", reason="the package faiss-cpu is not installed")
sys.path.append(str(Path(__file__).parents[1] / "models"))
from model_folders import PIECES, piece_model, word_model  # noqa: E402

from glassrank.integrations.vector_index import MeanVectors, VectorIndex  # noqa: E402
from glassrank.models.model import TokenEmbeddings  # noqa: E402

MADE = {"a": [1.0, 0.0], "b": [0.6, 0.8], "c": [0.0, 1.0], "query": [0.8, 0.6]}


def encode(texts: list[str]) -> Any:
    return [MADE[text] for text in texts]


def test_the_nearest_by_hand() -> None:
    index = VectorIndex.build({1: "a", 2: "b", 3: "c"}, encode)
    ids, scores = index.search("query", 2)
    assert ids == [2, 1] and scores == pytest.approx([0.6 * 0.8 + 0.8 * 0.6, 0.8])
    assert len(index.search("query", 10).ids) == 3


def test_vectors_are_the_means_of_a_models_words() -> None:
    reranker = gr.load("default")
    texts = ["a cat", "the cat sat on the mat, and the dog did not", "a cat"]
    vectors = MeanVectors(reranker)(texts)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-4)
    words = reranker.encode_query(texts[1])
    mean = (np.asarray(words.vectors)[0] * np.asarray(words.mask)[0][:, None]).sum(0)
    cosine = float(vectors[1] @ mean / np.linalg.norm(mean))
    assert cosine > 0.999  # a query is encoded by another form of the same layers
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-2) and vectors[0] @ vectors[1] < 0.99


def test_a_single_vector_finds_as_it_ranks(tmp_path: Path) -> None:
    reranker = gr.load(piece_model(tmp_path / "model", "single_vector"))
    texts = {n: " ".join(PIECES[4 + (n * step) % 30] for step in range(1, 9)) for n in range(20)}
    query = " ".join(PIECES[6:10])
    index = VectorIndex.build(texts, MeanVectors(reranker))
    ids, scores = index.search(query, 20)
    own = reranker.scores(query, list(texts.values())).values
    assert scores == pytest.approx(own[ids] / np.exp(3.0), abs=1e-3)  # its scale, as it begins
    assert np.ptp(scores) > 0.05


def test_models_whose_words_make_no_vector(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a bert model has no vector"):
        MeanVectors(gr.load(piece_model(tmp_path / "model", "bert")))
    with pytest.raises(InputError, match="a tk model has no vector"):
        MeanVectors(gr.load(word_model(tmp_path / "tk")))


def test_a_hybrid_of_words_and_vectors(
    texts: dict[str, str], query: str, best: str, tmp_path: Path
) -> None:
    docs = [gr.Doc(doc_id, text) for doc_id, text in texts.items()]
    by_words = IndexFirstStage(gr.Index.build(docs, tmp_path / "i"))
    by_vectors = VectorIndex.build(docs, MeanVectors(gr.load()))
    assert by_vectors.search("spreadsheet with commas", 1).ids == [best]  # no word of it agrees
    search = gr.TextPipeline(Hybrid([by_words, by_vectors]), "fast", docs=by_words)
    ranking = search(query, k=3)
    assert ranking[0].doc_id == best and ranking.depth == len(texts)


def test_indexes_that_do_not_fit() -> None:
    index = faiss.IndexFlatIP(2)
    with pytest.raises(InputError, match="the index has 0 vectors, but there are 1 ids"):
        VectorIndex(index, ["a"], encode)
    with pytest.raises(InputError, match="METRIC_INNER_PRODUCT"):
        VectorIndex(faiss.IndexFlatL2(2), [], encode)
    with pytest.raises(InputError, match="there are no texts to encode"):
        VectorIndex.build({}, encode)


def test_a_query_is_encoded_with_its_own_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = gr.load(piece_model(tmp_path / "model", "kernel_bert"))
    index = VectorIndex.build({"a": "the cat", "b": "a dog"}, MeanVectors(reranker))
    queries: list[str] = []
    encode = reranker.encode_query

    def record(query: str) -> TokenEmbeddings:
        queries.append(query)
        return encode(query)

    monkeypatch.setattr(reranker, "encode_query", record)
    assert len(index.search("the cat", 2).ids) == 2
    assert queries == ["the cat"]
