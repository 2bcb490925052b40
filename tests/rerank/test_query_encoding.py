"""Queries as PyTorch encodes them on a CPU: by the model's own layers."""

from collections.abc import Callable

import pytest
import torch

pytest.importorskip("numba")
from glassrank.backends.configs import EncoderConfig
from glassrank.explanations.explainers import explain_text
from glassrank.models import EmbeddingTable, Ranker, TokenBatch
from glassrank.models.bi_encoders import KernelBERT, MaxSim
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.models.late_interaction import ContextualConfig, KernelBERTConfig, TKConfig
from glassrank.rerank import Reranker
from glassrank.rerank.torch_backend import QueryEncoder
from glassrank.research.papers.tk import TK, TKWindowed, TKWindowedConfig

LAYERS = ContextualConfig(2, 2, 8, feed_forward=20)
ENCODER = EncoderConfig(vocabulary=30, size=32, layers=2, heads=4, feed_forward=40, positions=20)


def table() -> EmbeddingTable:
    return EmbeddingTable(torch.randn(30, 24), trained=False)


def tk() -> TK:
    return TK(TKConfig(size=24, contextual=LAYERS, term_weights=True), table())


MODELS: dict[str, Callable[[], Ranker]] = {
    "tk": tk,
    "tk_windowed": lambda: TKWindowed(TKWindowedConfig(size=24, contextual=LAYERS), table()),
    "kernel_bert": lambda: KernelBERT(KernelBERTConfig(ENCODER, size=16)),
    "maxsim": lambda: MaxSim(MaxSim.info.config_type(ENCODER, size=16)),
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
@torch.no_grad()
def test_exact_means_the_models_own(name: str) -> None:
    model, batch = trained(name), query(9)
    found = QueryEncoder(model, 20, exact=True)(batch)
    assert torch.equal(found.vectors, model.encode_query(batch).vectors)


@torch.no_grad()
def test_rankers_encode_queries_by_the_models_own_layers() -> None:
    words = [f"word{number}" for number in range(30)]
    saved = SavedModel(trained("tk"), Usage(query_length=20, doc_length=20), words)
    text = "word4 word5 word9"
    plain = saved.model.encode_query(TokenBatch(torch.tensor([[4, 5, 9]]), torch.ones(1, 3)))
    for exact in (True, False):
        found = Reranker(saved, exact=exact).encode_query(text)
        assert torch.equal(found.vectors, plain.vectors)


def test_the_score_that_was_ranked_is_explained() -> None:
    words = [f"word{number}" for number in range(30)]
    saved = SavedModel(trained("tk"), Usage(query_length=20, doc_length=20), words)
    reranker, text = Reranker(saved), "word4 word8 word9 word2"
    explained = explain_text(reranker, "word4 word5 word9", text)
    ranked = reranker.scores("word4 word5 word9", [text]).values[0]
    assert explained.score == pytest.approx(float(ranked), rel=1e-6)
    assert explained.parts.value == pytest.approx(float(ranked), rel=1e-5)
