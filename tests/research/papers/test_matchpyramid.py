"""MatchPyramid: equal to the authors' code as an option, blind to padding by default."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from glassrank.models.model import Output, TokenEmbeddings
from glassrank.models.torch_models import Ranker
from glassrank.research.papers.matchpyramid import (
    MatchPyramid,
    MatchPyramidConfig,
    dynamic_max_pool,
)
from tests.parity import __main__ as parity
from tests.parity.convolutional import BUILDERS

FIXTURE = Path(__file__).resolve().parents[3].parent / "shared" / "parity"
SMALL = MatchPyramidConfig(size=4, channels=(4, 4), pools=((6, 8), (2, 3)), hidden=(20, 10))
lengths = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 12)), min_size=1, max_size=4)


def texts(sizes: list[int], seed: int, padding: int = 0) -> TokenEmbeddings:
    """Random vectors, with garbage in place of the padding."""
    made = torch.Generator().manual_seed(seed)
    vectors = torch.randn(len(sizes), 20, 4, generator=made)[:, : max(sizes) + padding]
    mask = (torch.arange(max(sizes) + padding) < torch.tensor(sizes)[:, None]).float()
    return TokenEmbeddings(vectors, mask, torch.ones_like(mask))


def model(config: MatchPyramidConfig = SMALL) -> MatchPyramid:
    torch.manual_seed(1)
    return MatchPyramid(config).eval()


def score(ranker: MatchPyramid, query: TokenEmbeddings, doc: TokenEmbeddings) -> torch.Tensor:
    with torch.no_grad():
        return ranker.interact(ranker.query_words(query), ranker.doc_words(doc)).score


@pytest.mark.data
@pytest.mark.skipif(not FIXTURE.is_dir(), reason="shared/parity is not there")
def test_same_as_the_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours in double precision: one score is near zero, where float32's convolutions differ by as
    much between processors as this allows."""

    def run(
        model: Ranker, inputs: dict[str, torch.Tensor]
    ) -> tuple[TokenEmbeddings, TokenEmbeddings, Output]:
        doubled = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
        return in_float32(model.double(), doubled)

    in_float32 = parity.run
    monkeypatch.setattr(parity, "run", run)
    monkeypatch.setattr(parity, "BUILDERS", BUILDERS)
    monkeypatch.setattr(parity, "SOFTENING", 0.0)
    found = dict(parity.differences(FIXTURE / "matchpyramid.safetensors"))
    assert len(found) >= 3
    assert max(found.values()) < 1e-5


@settings(max_examples=12, deadline=None)
@given(sizes=lengths, rows=st.integers(1, 9), columns=st.integers(1, 9))
def test_dynamic_pooling_is_adaptive_pooling_without_the_padding(
    sizes: list[tuple[int, int]], rows: int, columns: int
) -> None:
    query, doc = texts([q for q, _ in sizes], 0, 2), texts([d for _, d in sizes], 0, 3)
    maps = torch.randn(len(sizes), 2, query.mask.shape[1], doc.mask.shape[1])
    pooled = dynamic_max_pool(maps, query.mask, doc.mask, (rows, columns))
    for number, (q, d) in enumerate(sizes):
        expected = functional.adaptive_max_pool2d(maps[number, :, :q, :d], (rows, columns))
        torch.testing.assert_close(pooled[number], expected, atol=0, rtol=0)


def test_the_authors_form_depends_on_padding() -> None:
    """Why it is not the default."""
    ranker = model(MatchPyramidConfig(size=4, masked=False))
    query, doc = texts([3], 0), texts([9], 1)
    mask = functional.pad(doc.mask, (0, 6))
    padded = TokenEmbeddings(functional.pad(doc.vectors, (0, 0, 0, 6)), mask, mask)
    assert abs(score(ranker, query, padded) - score(ranker, query, doc)).item() > 1e-5


def test_one_word_meets_one_word() -> None:
    ranker = model(MatchPyramidConfig(size=4))
    query = ranker.query_words(texts([1], 0))
    out = ranker.interact(query, query)
    torch.testing.assert_close(out.parts["similarity"], torch.ones(1, 1, 1))
    assert out.score.shape == (1,)
    assert out.score.isfinite().all()
    assert not ranker.info.is_additive


def test_parts_name_the_words_they_belong_to() -> None:
    ranker = model()
    query, doc = texts([3, 2], 0), texts([4, 7], 1)
    parts = ranker.interact(ranker.query_words(query), ranker.doc_words(doc)).parts
    assert parts["similarity"].shape == parts["patterns"].shape == (2, 3, 7)
    assert parts["pyramid"].shape == (2, 4, 2, 3)
    for name in ("similarity", "patterns"):
        assert not parts[name][1, 2].any()
        assert not parts[name][0, :, 4:].any()


def test_a_batch_of_empty_documents_has_scores() -> None:
    ranker = model()
    empty = TokenEmbeddings(torch.zeros(2, 0, 4), torch.zeros(2, 0), torch.zeros(2, 0))
    wider = TokenEmbeddings(torch.zeros(2, 3, 4), torch.zeros(2, 3), torch.zeros(2, 3))
    query = texts([3, 3], 0)
    torch.testing.assert_close(score(ranker, query, empty), score(ranker, query, wider))


def test_a_convolution_without_a_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="each convolution needs a pool"):
        MatchPyramidConfig(channels=(8,))
