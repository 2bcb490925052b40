"""TKL against a plain second form, and what each of its ideas promises."""

import math

import pytest
import torch
from torch import Tensor

from glassrank.models import TokenEmbeddings
from glassrank.models.late_interaction import ContextualConfig
from glassrank.research.papers.tkl import TKL, TKLConfig

LAYERS = ContextualConfig(layers=1, heads=2, attention_size=4, feed_forward=8)


def small(**changes: object) -> TKL:
    torch.manual_seed(3)
    model = TKL(TKLConfig(size=8, contextual=LAYERS, **changes)).double().eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def words(length: int, seed: int) -> TokenEmbeddings:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(1, length, 8, generator=generator, dtype=torch.float64)
    return TokenEmbeddings(vectors, *torch.ones(2, 1, length, dtype=torch.float64))


def plain_score(model: TKL, query: TokenEmbeddings, doc: TokenEmbeddings) -> float:
    """By loops over encoded words, as the paper and its code describe it."""
    config = model.config
    vectors, features = query.vectors[0], query.idf[0].tolist()
    length = doc.vectors.shape[1]
    scores = []
    for start in range(0, length, config.stride):
        inside = doc.vectors[0, start : start + config.window]
        score = 0.0
        for q, feature in enumerate(features):
            pair = torch.tensor([feature, len(inside) / config.window], dtype=torch.float64)
            if model.norm is not None:
                pair = model.norm(torch.tensor([feature, len(inside)], dtype=torch.float64))
            factor, root, offset = model.saturation(pair).tolist()
            for k, (center, width) in enumerate(
                zip(config.kernels.centers, config.kernels.widths, strict=True)
            ):
                count = sum(
                    math.exp(-((float(vectors[q] @ word) - center) ** 2) / (2 * width**2))
                    for word in inside
                )
                saturated = factor * max(count, 1e-10) ** (1 / root) - offset
                score += model.kernel_weights[k].item() * saturated
        scores.append(score)
    total, free = 0.0, set(range(len(scores)))
    for region in range(config.regions):
        if not free:
            break
        best = max(free, key=lambda window: scores[window])
        free = {w for w in free if abs(w - best) * config.stride >= config.window}
        for slot in range(2 * config.neighbours + 1):
            place = best + slot - config.neighbours
            if 0 <= place < len(scores):
                total += model.region_weights[region, slot].item() * scores[place]
    return total


@pytest.mark.parametrize("length", [1, 7, 40, 131])
@pytest.mark.parametrize("authors_norm", [False, True])
@torch.no_grad()
def test_scores_equal_the_plain_form(length: int, authors_norm: bool) -> None:
    model = small(window=12, authors_norm=authors_norm)
    query, doc = model.query_words(words(3, 1)), model.doc_words(words(length, 2))
    expected = plain_score(model, query, doc)
    assert model.interact(query, doc).score.item() == pytest.approx(expected, rel=1e-6)


@torch.no_grad()
def test_a_word_attends_to_its_chunk_and_a_few_beside_it() -> None:
    model = small()
    text = words(130, 4)
    changed = text.vectors.clone()
    changed[0, 86] += 1  # in the third chunk, words 80 to 119; beyond the five after the second
    before, after = (model.doc_words(t).vectors for t in (text, text.with_vectors(changed)))
    moved = (before != after).any(-1)[0].nonzero().flatten().tolist()
    assert moved == list(range(80, 120))
    changed[0, 84] += 1  # the second chunk sees it
    moved = (before != model.doc_words(text.with_vectors(changed)).vectors).any(-1)[0]
    assert moved.nonzero().flatten().tolist() == list(range(40, 120))


def test_saturation_begins_as_a_logarithm() -> None:
    model = TKL(TKLConfig(size=8, contextual=LAYERS))
    torch.nn.init.zeros_(model.saturation.weight)
    counts = torch.tensor([0.1, 1.0, 5.0, 30.0]).view(1, 1, 1, 4)
    begun: Tensor = model.saturate(counts, torch.ones(1, 1), torch.ones(1, 1)).detach()
    torch.testing.assert_close(begun, counts.log(), rtol=0.03, atol=1e-4)


@torch.no_grad()
def test_regions_do_not_overlap_and_their_neighbours_exist() -> None:
    model = small()
    for length in (9, 25, 200):
        query, doc = model.query_words(words(3, 1)), model.doc_words(words(length, length))
        places = model.interact(query, doc).parts["places"][0]  # (R, N)
        centers = [c for c in places[:, 2].tolist() if c >= 0]
        assert len(centers) == {9: 1, 25: 1, 200: 3}[length]
        assert all(abs(a - b) >= 15 for a in centers for b in centers if a != b)
        assert int(places.max()) < math.ceil(length / 2)


def test_a_stride_longer_than_the_window_is_refused() -> None:
    with pytest.raises(ValueError, match="at most window"):
        TKLConfig(window=4, stride=5)
