"""Re-ranking texts: the same scores as the model alone, whatever the batches."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from glassrank.deadline import Deadline, LateError
from glassrank.models import EmbeddingTable, TokenBatch
from glassrank.models.io.model_folder import Passages, SavedModel, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.late_interaction import ContextualConfig, TKConfig
from glassrank.models.model import make_batch
from glassrank.rerank import Reranker, reranker
from glassrank.rerank.cascade import sort_scored
from glassrank.research.papers.tk import TK

WORDS = ["<pad>", "<unk>", "cat", "dog", "mat", "sat", "the", "sea", "cold"]
TEXTS = ["the cat sat", "dog", "the cold sea the cold sea", "cat cat cat mat", "zebra the"]


@pytest.fixture
def saved() -> SavedModel:
    torch.manual_seed(0)
    config = TKConfig(size=8, contextual=ContextualConfig(1, 2, 4, feed_forward=8))
    model = TK(config, EmbeddingTable(torch.randn(len(WORDS), 8), trained=False))
    model.mix_first_stage(0.5)
    return SavedModel(model.eval(), Usage(query_length=4, doc_length=5, depth=2), WORDS)


def alone(saved: SavedModel, query: str, text: str, first_stage: float) -> float:
    """The contract's three calls, one text at a time, no padding."""

    def batch(words: list[str]) -> TokenBatch:
        ids = [WORDS.index(word) if word in WORDS else 1 for word in words]
        return TokenBatch(torch.tensor([ids]), torch.ones(1, len(ids)))

    model = saved.model
    q = model.encode_query(batch(query.split()[:4]))
    d = model.encode_doc(batch(text.split()[:5]))
    return model.rank(q, d, torch.tensor([first_stage])).score.item()


@pytest.mark.parametrize("tokens_at_once", [1, 7, 10_000])
def test_scores_are_the_models_own(
    saved: SavedModel, monkeypatch: pytest.MonkeyPatch, tokens_at_once: int
) -> None:
    monkeypatch.setattr(reranker, "TOKENS_AT_ONCE", tokens_at_once)
    first = [3.0, 2.0, 1.5, 1.0, 0.5]
    found = Reranker(saved, exact=True).scores("the cat", TEXTS, first)
    expected = [alone(saved, "the cat", t, f) for t, f in zip(TEXTS, first, strict=True)]
    np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-5)


def test_what_was_cut_is_reported(saved: SavedModel) -> None:
    assert not Reranker(saved).scores("cat", TEXTS).cut.any()  # it is read in passages
    cut = replace(saved, usage=replace(saved.usage, passages=Passages(most=1)))
    assert Reranker(cut).scores("cat", TEXTS).cut.tolist() == [0, 0, 1, 0, 0]


def test_no_texts_give_no_scores(saved: SavedModel) -> None:
    assert len(Reranker(saved).scores("cat", []).values) == 0


def test_an_empty_text_and_an_empty_query_have_scores(saved: SavedModel) -> None:
    assert np.isfinite(Reranker(saved).scores("", ["", "cat"]).values).all()


def test_below_what_was_scored_candidates_keep_their_order() -> None:
    places, scores = sort_scored(np.array([1.0, 3.0, 2.0], np.float32), 5)
    assert places.tolist() == [1, 2, 0, 3, 4]
    assert all(a > b for a, b in pairwise(scores))


def test_a_model_folder_is_enough(saved: SavedModel, tmp_path: Path) -> None:
    save_model(tmp_path / "model", saved.model, saved.usage, saved.vocabulary, "# card\n")
    again = Reranker.load(tmp_path / "model")
    assert again.usage.depth == 2
    found, wanted = (
        again.scores("cat", TEXTS, [0.0] * 5),
        Reranker(saved).scores("cat", TEXTS, [0.0] * 5),
    )
    # One is served by ONNX Runtime, the other by PyTorch.
    assert np.allclose(found.values, wanted.values, rtol=1e-4)


def test_onnx_runtime_stops_in_the_middle_of_texts(saved: SavedModel, tmp_path: Path) -> None:
    """PyTorch's layers do not look, and are not said to; before a text all do."""
    save_model(tmp_path / "model", saved.model, saved.usage, saved.vocabulary, "# card\n")
    served, trained = Reranker.load(tmp_path / "model"), Reranker(saved)
    assert served.is_interruptible and not trained.is_interruptible
    for model in (served, trained):
        query, ids = model.encode_query("cat"), [np.array([2], np.int32)] * 3
        with pytest.raises(LateError):
            model.score_passages(query, ids, deadline=Deadline.after(0.0))
        assert len(model.score_passages(query, ids)) == 3
    with pytest.raises(LateError):
        served.encode_doc(make_batch(ids, None), Deadline.after(0.0))


def test_a_model_ranks_documents_by_itself(saved: SavedModel) -> None:
    model = Reranker(saved)
    docs = [{"text": text, "title": "", "source": f"file {n}"} for n, text in enumerate(TEXTS)]
    ranking = model.rank("cat", docs, k=2, ids=list("abcde"))
    scores = model.scores("cat", TEXTS).values
    best = np.argsort(-scores, kind="stable")[:2]
    assert [hit.doc_id for hit in ranking] == ["abcde"[place] for place in best]
    assert [hit.text for hit in ranking] == [TEXTS[place] for place in best]
    assert [hit.source for hit in ranking] == [f"file {place}" for place in best]
    assert [hit.score for hit in ranking] == pytest.approx(scores[best].tolist())
