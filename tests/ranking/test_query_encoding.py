"""Queries as rankers encode them on a CPU: near the model's own, and the model's own if exact."""

import os
from collections.abc import Callable

import pytest
import torch

pytest.importorskip("numba")
from glassrank.explaining.explainers import explain_text
from glassrank.models import Ranker, TokenBatch, WordTable
from glassrank.models.bert import BERT, BERTConfig
from glassrank.models.bi_encoders import KernelBERT, KernelBERTConfig, MaxSim
from glassrank.models.checkpoint import SavedModel, Usage
from glassrank.models.fast import query_form
from glassrank.models.tk import TK, TKConfig, TKWindowed, TKWindowedConfig
from glassrank.nn.cpu.query_encoders import ContextualQueryOnCPU, EncoderOnCPU
from glassrank.nn.threads import lead, one_thread
from glassrank.nn.transformer import ContextualConfig, ContextualLayers, EncoderConfig
from glassrank.ranking import Reranker
from glassrank.ranking.by_torch import QueryEncoder

LAYERS = ContextualConfig(2, 2, 8, feed_forward=20)
ENCODER = EncoderConfig(vocabulary=30, size=32, layers=2, heads=4, feed_forward=40, positions=20)


def table() -> WordTable:
    return WordTable(torch.randn(30, 24), trained=False)


def tk() -> TK:
    return TK(TKConfig(size=24, contextual=LAYERS, term_weights=True), table())


MODELS: dict[str, Callable[[], Ranker]] = {
    "tk": tk,
    "tk_windowed": lambda: TKWindowed(TKWindowedConfig(size=24, contextual=LAYERS), table()),
    "kernel_bert": lambda: KernelBERT(KernelBERTConfig(ENCODER, size=16)),
    "maxsim": lambda: MaxSim(MaxSim.config_type(ENCODER, size=16)),
}


def trained(name: str) -> Ranker:
    torch.manual_seed(0)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def query(length: int) -> TokenBatch:
    return TokenBatch(torch.randint(1, 30, (1, length)), torch.ones(1, length))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("length", [1, 2, 9, 20])
@torch.no_grad()
def test_words_are_those_of_the_model(name: str, length: int) -> None:
    model, batch = trained(name), query(length)
    expected, found = model.encode_query(batch), QueryEncoder(model, 20)(batch)
    assert found.vectors.dtype == torch.float32
    cosines = (found.vectors * expected.vectors).sum(-1)
    assert cosines.min() > 0.999 and not torch.equal(found.vectors, expected.vectors)
    torch.testing.assert_close(found.idf, expected.idf, rtol=0.02, atol=0.02)
    assert torch.equal(found.mask, expected.mask)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_exact_means_the_models_own(name: str) -> None:
    model, batch = trained(name), query(9)
    found = QueryEncoder(model, 20, exact=True)(batch)
    assert torch.equal(found.vectors, model.encode_query(batch).vectors)


@torch.no_grad()
def test_rankers_pass_on_whether_they_are_exact() -> None:
    words = [f"word{number}" for number in range(30)]
    saved = SavedModel(trained("tk"), Usage(query_length=20, doc_length=20), words)
    text = "word4 word5 word9"
    plain = saved.model.encode_query(TokenBatch(torch.tensor([[4, 5, 9]]), torch.ones(1, 3)))
    exact, fast = (Reranker(saved, exact=exact).encode_query(text) for exact in (True, False))
    assert torch.equal(exact.vectors, plain.vectors)
    assert not torch.equal(fast.vectors, plain.vectors)


def test_the_trained_model_keeps_its_layers() -> None:
    model = trained("tk")
    assert isinstance(query_form(model).contextual, ContextualQueryOnCPU)
    assert isinstance(model.contextual, ContextualLayers)
    assert isinstance(query_form(trained("kernel_bert")).encoder, EncoderOnCPU)


def test_models_that_read_queries_with_documents_stay_as_they_are() -> None:
    model = BERT(BERTConfig(ENCODER))
    assert query_form(model) is model


def test_the_score_that_was_ranked_is_explained() -> None:
    words = [f"word{number}" for number in range(30)]
    saved = SavedModel(trained("tk"), Usage(query_length=20, doc_length=20), words)
    reranker, text = Reranker(saved), "word4 word8 word9 word2"
    explained = explain_text(reranker, "word4 word5 word9", text)
    ranked = reranker.scores("word4 word5 word9", [text]).values[0]
    assert explained.score == pytest.approx(float(ranked), rel=1e-6)
    assert explained.parts.value == pytest.approx(float(ranked), rel=1e-5)


def test_threads_are_those_that_torch_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that it had when the encoder was made."""
    invited: list[int] = []

    def noting(work: Callable[[bool], int], others: int) -> int:
        invited.append(others)
        return lead(work, others)

    monkeypatch.setattr("glassrank.nn.cpu.few_rows.lead", noting)
    monkeypatch.setattr("glassrank.nn.cpu.few_rows._WORTH", 1)
    fewest = dict.fromkeys(("tiles", "integers", "floats"), 1)
    monkeypatch.setattr("glassrank.nn.cpu.few_rows._FEWEST_WEIGHTS", fewest)
    monkeypatch.setattr("glassrank.nn.cpu.few_rows._FIRST_ALONE", 0)
    monkeypatch.setattr("glassrank.nn.cpu.few_rows._ALONE", 0)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        encode = QueryEncoder(trained("kernel_bert"), 20)
        invited.clear()
        with one_thread():  # of PyTorch's own: what is allowed stays the same
            encode(query(9))
        torch.set_num_threads(1)
        encode(query(9))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert invited == [min(2, os.cpu_count() or 1) - 1, 0]
