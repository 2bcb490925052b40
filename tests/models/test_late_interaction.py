"""Families over a pretrained encoder: kernels, MaxSim, one vector."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import piece_batch, small_model
from torch.nn import functional

from glassrank.backends.configs import EncoderConfig, Kernels
from glassrank.models import MODELS, SubwordRanker, TokenBatch, TokenEmbeddings
from glassrank.models.bi_encoders import KernelBERT
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.late_interaction import KernelBERTConfig
from glassrank.models.pretrained import Pretrained
from glassrank.settings import to_plain

FAMILIES = ("kernel_bert", "maxsim", "single_vector")
every_family = pytest.mark.parametrize("name", FAMILIES)
lengths = st.integers(2, 9)


def family(name: str, **changes: object) -> SubwordRanker:
    model = small_model(name, **changes)
    assert isinstance(model, SubwordRanker)
    return model


@pytest.mark.parametrize("name", ["kernel_bert", "maxsim"])
@settings(max_examples=10, deadline=None)
@given(q=lengths, d=lengths, seed=st.integers(0, 99))
def test_exact_parts_add_up(name: str, q: int, d: int, seed: int) -> None:
    model = family(name)
    with torch.no_grad():
        out = model.explain(piece_batch([q, 3], seed=seed), piece_batch([d, 2], seed=seed + 1))
    total = sum(out.parts[part].flatten(1).sum(1) for part in model.info.summands)
    torch.testing.assert_close(total, out.score, rtol=1e-5, atol=1e-5)


@every_family
def test_it_starts_with_a_pretrained_encoder(name: str) -> None:
    model = family(name)
    weights = {name: tensor.clone() for name, tensor in model.encoder.state_dict().items()}
    pretrained = Pretrained(model.config.encoder, weights, ["[PAD]"], lowercase=False)
    fresh = type(model).start(pretrained)
    assert not fresh.config.text.lowercase
    batch = piece_batch([6])
    with torch.no_grad():
        assert torch.equal(
            fresh.eval().encoder(batch.ids, batch.mask), model.encoder(batch.ids, batch.mask)
        )


@every_family
def test_rounding_leaves_the_trained_model_as_it_is(name: str) -> None:
    model = family(name)
    query, doc = piece_batch([5]), piece_batch([9])
    with torch.no_grad():
        before = model(query, doc)
        fast = model.for_gpu()
        rounded = fast.interact(model.encode_query(query), fast.encode_doc(doc)).score
        assert torch.equal(model(query, doc), before)
    assert next(model.encoder.parameters()).dtype == torch.float32
    torch.testing.assert_close(rounded.float(), before, rtol=0.1, atol=0.1)


similarities = st.floats(-1, 1, width=32)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(similarities, min_size=1, max_size=6),
    place=st.integers(0, 5),
    closer=similarities,
    seed=st.integers(0, 9),
)
def test_a_closer_match_never_counts_against_a_document(
    rows: list[float], place: int, closer: float, seed: int
) -> None:
    """Whatever the weights: one document piece comes closer to the query's, and no score falls."""
    model = family("kernel_bert", seed=seed)
    assert isinstance(model, KernelBERT)
    place %= len(rows)

    def score(values: list[float]) -> float:
        angles = torch.tensor(values, dtype=torch.float64).acos()
        doc = torch.stack([angles.cos(), angles.sin()], 1).float()[None]  # (1, D, 2)
        ones = torch.ones(1, len(values))
        query = TokenEmbeddings(torch.tensor([[[1.0, 0.0]]]), torch.ones(1, 1), torch.ones(1, 1))
        with torch.no_grad():
            return model.interact(query, TokenEmbeddings(doc, ones, ones)).score.item()

    nearer = [*rows[:place], max(rows[place], closer), *rows[place + 1 :]]
    assert score(nearer) >= score(rows) - 1e-5


def test_the_papers_kernels_can_be_asked_for() -> None:
    plain = to_plain(Kernels.eleven())
    model = family("kernel_bert", kernels=plain, monotone=False)
    assert model.config.kernels == replace(Kernels.eleven())
    with torch.no_grad():
        assert torch.isfinite(model(piece_batch([4]), piece_batch([7]))).all()


def test_families_are_named() -> None:
    assert set(FAMILIES) <= set(MODELS)


@pytest.mark.parametrize("layers", ["float16", "int8"])
def test_a_packaged_form_takes_less_room_and_scores_alike(layers: str, tmp_path: Path) -> None:
    model = family("kernel_bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(36))]
    usage = Usage(query_length=12, doc_length=20)
    for name, kept in (("whole", ()), ("small", ("int8", layers))):
        save_model(tmp_path / name, model, usage, words, "# card\n", *kept)
    sizes = [(tmp_path / n / "weights.safetensors").stat().st_size for n in ("small", "whole")]
    assert sizes[0] < 0.7 * sizes[1]  # headers are most of a model this small
    small = load_model(tmp_path / "small").model
    query, doc = piece_batch([5]), piece_batch([9])
    with torch.no_grad():
        torch.testing.assert_close(small(query, doc), model(query, doc), rtol=0.05, atol=0.05)
    table = small.get_parameter("encoder.embeddings.pieces.weight")
    original = model.get_parameter("encoder.embeddings.pieces.weight")
    largest = original.abs().amax(1, keepdim=True)
    assert bool(((table - original).abs() <= largest / 127).all())


def test_the_projection_begins_where_the_states_are() -> None:
    torch.manual_seed(3)
    encoder = EncoderConfig(40, 12, 1, 3, 16, 20, dropout=0.0)
    model = KernelBERT(KernelBERTConfig(encoder, size=3)).eval()
    before = model.projection.weight.clone()
    model.fit_statistics([])  # nothing to learn from
    assert torch.equal(model.projection.weight, before)
    ids = torch.randint(4, 40, (6, 9))
    mask = torch.ones(6, 9)
    mask[2, 4:] = 0
    model.fit_statistics([TokenBatch(ids[:3], mask[:3]), TokenBatch(ids[3:], mask[3:])])
    weight = model.projection.weight.detach()
    torch.testing.assert_close(weight @ weight.T, torch.eye(3), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        states = functional.normalize(model.encoder(ids, mask), dim=-1)[mask > 0]  # (T, H)
    kept = (states @ weight.T).square().sum()
    best = torch.linalg.svdvals(states)[:3].square().sum()  # of any three directions
    torch.testing.assert_close(kept, best, rtol=1e-4, atol=1e-4)
