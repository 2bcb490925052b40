"""DUET: equal to the authors' code as an option, blind to padding by default."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional

from glassrank.models.model import TokenBatch, TokenEmbeddings
from glassrank.models.torch_models import EmbeddingTable
from glassrank.research.papers.duet import Duet, DuetConfig
from glassrank.settings import from_plain, to_plain
from tests.parity import __main__ as parity
from tests.parity.authors import tk_authors
from tests.parity.convolutional import BUILDERS

FIXTURE = Path(__file__).resolve().parents[3].parent / "shared" / "parity"
SMALL = DuetConfig(size=4, hidden=6, query_length=5, doc_length=12, doc_pool=4)
lengths = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 15)), min_size=1, max_size=4)


def texts(sizes: list[int], seed: int, padding: int = 0) -> TokenEmbeddings:
    """Random vectors and idf, with garbage in place of the padding."""
    made = torch.Generator().manual_seed(seed)
    width = max(sizes) + padding
    vectors = torch.randn(len(sizes), 20, 4, generator=made)[:, :width]
    idf = torch.rand(len(sizes), 20, generator=made)[:, :width]
    mask = (torch.arange(width) < torch.tensor(sizes)[:, None]).float()
    return TokenEmbeddings(vectors, mask, idf)


def model(config: DuetConfig = SMALL) -> Duet:
    torch.manual_seed(1)
    ranker = Duet(config).eval()
    for parameter in ranker.combine.parameters():  # so that small differences would show
        parameter.data.mul_(100)
    return ranker


def score(ranker: Duet, query: TokenEmbeddings, doc: TokenEmbeddings) -> torch.Tensor:
    with torch.no_grad():
        return ranker.interact(ranker.query_words(query), ranker.doc_words(doc)).score


@pytest.mark.data
@pytest.mark.skipif(not FIXTURE.is_dir(), reason="shared/parity is not there")
def test_same_as_the_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their scores differ by a thousandth only: the limit is one in a thousand of that."""
    path = FIXTURE / "duet_dim32.safetensors"
    theirs = load_file(path)["seed0.full.out.score"].flatten()
    spread = (theirs.max() - theirs.min()) / theirs.max()
    monkeypatch.setattr(parity, "BUILDERS", BUILDERS)
    monkeypatch.setattr(parity, "SOFTENING", 0.0)
    assert max(dict(parity.differences(path)).values()) < 1e-3 * spread


def test_scores_do_differ() -> None:
    """The invariances above would hold for a dead model too."""
    ranker = model()
    scores = score(ranker, texts([4] * 6, 0), texts([9] * 6, 1))
    assert scores.min() > 0
    assert scores.std() > 1e-3


@pytest.mark.parametrize("masked", [True, False])
def test_padding_answers_through_biases_unless_silenced(masked: bool) -> None:
    ranker = model(replace(SMALL, mask_hidden=masked))
    query, doc = texts([2], 0), texts([6], 1)
    with torch.no_grad():
        ranker.local.bias.fill_(1)  # the local half's answer to an empty place
        before = score(ranker, query, doc)
        by_place = ranker.local_dense[1].weight.view(6, 6, 5)  # (H, H, Q)
        by_place[..., 2:] += 1  # what places behind the query's end count
    assert torch.equal(score(ranker, query, doc), before) == masked


def test_an_exact_match_is_the_same_vector_times_its_idf() -> None:
    ranker = model()
    query = texts([3], 0)
    stored = (query.vectors.flip(1) * 2).bfloat16().float()  # of another length, and rounded
    doc = query._replace(vectors=stored)
    parts = ranker.interact(ranker.query_words(query), ranker.doc_words(doc)).parts
    torch.testing.assert_close(parts["similarity"][0], torch.eye(3).flip(1))
    torch.testing.assert_close(parts["weighted"][0], torch.eye(3).flip(1) * query.idf[0][:, None])


def test_words_beyond_the_fixed_lengths_do_not_count() -> None:
    ranker = model()
    query, doc = texts([7], 0), texts([15], 1)
    cut = (
        TokenEmbeddings(*(part[:, :5] for part in query)),
        TokenEmbeddings(*(part[:, :12] for part in doc)),
    )
    torch.testing.assert_close(score(ranker, query, doc), score(ranker, *cut))
    parts = ranker.interact(query, doc).parts
    assert parts["similarity"].shape == (1, 7, 15)
    assert not parts["similarity"][0, 5:].any()


@pytest.mark.parametrize("local", ["exact", "cosine"])
def test_gradients_reach_every_parameter(local: str) -> None:
    torch.manual_seed(1)
    config = from_plain(DuetConfig, {**to_plain(SMALL), "hidden": 16, "local": local, "dropout": 0})
    ranker = Duet(config, EmbeddingTable(torch.randn(10, 4)))
    ids = torch.randint(1, 10, (16, 12))
    doc = TokenBatch(ids, torch.ones(16, 12))
    ranker(TokenBatch(ids[:, :5], torch.ones(16, 5)), doc).sum().backward()
    for name, parameter in ranker.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.to_dense().abs().sum() > 0, name


def test_dropout_is_the_original_s_and_acts_in_training_only() -> None:
    assert DuetConfig().dropout == 0.5
    assert tk_authors(Duet).dropout == 0
    ranker = model().train()
    query, doc = texts([4] * 8, 0), texts([9] * 8, 1)
    assert not torch.equal(score(ranker, query, doc), score(ranker, query, doc))
    ranker.eval()
    assert torch.equal(score(ranker, query, doc), score(ranker, query, doc))


def test_one_word_meets_one_word() -> None:
    ranker = model(DuetConfig(size=4, hidden=6))
    query = ranker.query_words(texts([1], 0))
    out = ranker.interact(query, query)
    torch.testing.assert_close(out.parts["similarity"], torch.ones(1, 1, 1))
    assert out.score.shape == (1,)
    assert out.score.isfinite().all()
    assert not ranker.info.is_additive


def test_an_empty_document_has_the_score_of_padding() -> None:
    ranker = model()
    empty = TokenEmbeddings(torch.zeros(1, 0, 4), torch.zeros(1, 0), torch.zeros(1, 0))
    padded = TokenEmbeddings(*(functional.pad(part, (0, 0, 0, 3)) for part in empty[:1]),
                   torch.zeros(1, 3), torch.zeros(1, 3))  # fmt: skip
    query = texts([3], 0)
    torch.testing.assert_close(score(ranker, query, empty), score(ranker, query, padded))


def test_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="too short for convolutions of 3 words"):
        DuetConfig(doc_length=50)
    with pytest.raises(ValueError, match="texts of 2 and 200 words"):
        DuetConfig(query_length=2)
