"""Transformers over pieces of words in the pipeline: rounded or exact, and in time."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from step_clock import StepClock

from glassrank.embeddings import Store, encode_index
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.io.model_folder import SavedModel
from glassrank.models.text_batches import make_text_encoder
from glassrank.rerank import CostModel, Pipeline, Reranker, stored_scorer
from glassrank.research.papers.ensemble import Ensemble
from glassrank.text.subwords import WordPieceEncoder

sys.path.append(str(Path(__file__).parents[1] / "embeddings"))
from small_mores import PIECES, USAGE, small_bert, small_index, small_mores

pytest.importorskip("tokenizers")
TEXTS = ["return a list", "the file object is a class", "import number", ""]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(tmp_path_factory.mktemp("pieces") / "index")


@pytest.mark.parametrize("saved", [small_bert(), small_mores()], ids=["bert", "mores"])
def test_exact_means_the_trained_weights(saved: SavedModel) -> None:
    saved.model.mix_first_stage(0.1234)
    exact, fast = Reranker(saved, exact=True), Reranker(saved)
    first = [30.0, 20.0, 10.0, 5.0]
    found, rounded = (one.scores("a list", TEXTS, first).values for one in (exact, fast))
    assert exact.dtype == torch.float32 and exact.fast_model is saved.model
    assert np.abs(found - rounded).max() < 0.1
    # The first stage's weight is never rounded: its scores are large.
    assert fast.fast_model.first_stage_weight is saved.model.first_stage_weight
    assert all(parameter.dtype == torch.float32 for parameter in saved.model.parameters())


@pytest.mark.parametrize("at_once", [1, 100, 100_000])
def test_batches_of_stored_documents_leave_no_trace(
    index: Index, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = small_mores()
    encode_index(index, saved, tmp_path / "store", "float32")
    store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    exact = Reranker(saved, exact=True)
    monkeypatch.setattr(stored_scorer, "_BATCH_TOKENS", {"cpu": at_once})
    monkeypatch.setattr(Reranker, "is_deterministic", False)  # in batches, though exact
    first = index.top_k(["return the list of a class"], 60)[0]
    assert len(first.docs) > 10
    ways = [Pipeline(index, exact, store=one, calibrate=False) for one in (None, store)]
    live, stored = (
        {hit.doc_id: hit.score for hit in way.rerank("a list", first.docs, first.scores)}
        for way in ways
    )
    assert stored == pytest.approx(live, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("way", ["bert", "mores", "mores stored"])
def test_a_budget_is_kept_as_with_any_model(index: Index, way: str, tmp_path: Path) -> None:
    saved, store = small_bert() if way == "bert" else small_mores(), None
    if way == "mores stored":
        encode_index(index, saved, tmp_path / "store", "bf16")
        store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    pipeline = Pipeline(index, Reranker(saved), store=store, clock=StepClock(), calibrate=False)
    pipeline.stages[0].cost = CostModel(0.5, 0.02)
    ranking = pipeline("return the list of a class", k=60, budget_ms=10)
    places = [hit.first_rank for hit in ranking]
    assert 0 < ranking.depth < len(ranking)
    assert sorted(places[: ranking.depth]) == list(range(1, ranking.depth + 1))
    assert places[ranking.depth :] == list(range(ranking.depth + 1, len(ranking) + 1))


def test_an_ensemble_of_transformers_reads_pieces(index: Index, tmp_path: Path) -> None:
    members = [small_mores(seed=1), small_mores(seed=2)]
    lengths = [(USAGE.query_length, USAGE.doc_length)] * 2
    saved = SavedModel(Ensemble([one.model for one in members], lengths), USAGE, PIECES)
    assert isinstance(make_text_encoder(saved), WordPieceEncoder)
    each = [Reranker(one, exact=True).scores("a list", TEXTS).values for one in members]
    found = Reranker(saved, exact=True).scores("a list", TEXTS).values
    np.testing.assert_allclose(found, sum(each) / 2, rtol=1e-5, atol=1e-5)
    encode_index(index, saved, tmp_path / "store", "float32")
    store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    reranker = Reranker(saved)
    ways = [Pipeline(index, reranker, store=one, calibrate=False) for one in (None, store)]
    live, stored = ({hit.doc_id: hit.score for hit in way("list", k=9)} for way in ways)
    assert live and stored == pytest.approx(live, rel=1e-5, abs=1e-5)


def test_members_that_read_texts_in_two_ways_are_refused() -> None:
    members = [small_mores().model, small_mores(doc_words=3).model]
    saved = SavedModel(Ensemble(members, [(12, 40)] * 2), USAGE, PIECES)
    with pytest.raises(InputError, match="must read texts alike"):
        Reranker(saved)
