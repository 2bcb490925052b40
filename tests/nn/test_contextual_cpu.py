"""The fast layers beside the plain ones, on the CPU; `triton_cases` has those of a GPU."""

import pytest
import torch

from glassrank.models import Words
from glassrank.models.tk import TK, TKConfig
from glassrank.nn.cpu import doc_encoders
from glassrank.nn.cpu.doc_encoders import ContextualOnCPU, Packed, rounded_up
from glassrank.nn.transformer import ContextualConfig, ContextualLayers

CONFIGS = [
    ContextualConfig(layers=2, heads=4, attention_size=8, feed_forward=10),
    ContextualConfig(layers=1, heads=3, attention_size=5, per_head=True, feed_forward=24),
]
EXACT = {"rtol": 1e-5, "atol": 1e-5}
ROUNDED = {"rtol": 0.05, "atol": 0.05}


def trained_layers(config: ContextualConfig, size: int = 24) -> ContextualLayers:
    torch.manual_seed(0)
    layers = ContextualLayers(size, config)
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layers


def random_words(lengths: list[int], seed: int = 0) -> Words:
    """With trailing padding, which holds zeros."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).float()
    vectors = torch.randn(len(lengths), 9, 24, generator=generator) * mask[..., None]
    return Words(vectors, mask, mask)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("lengths", [[9, 9], [9, 4, 1]], ids=["without padding", "with padding"])
@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float32, EXACT), (torch.bfloat16, ROUNDED)], ids=["fp32", "bf16"]
)
def test_same_words_as_the_plain_layers(
    config: ContextualConfig, lengths: list[int], dtype: torch.dtype, close: dict[str, float]
) -> None:
    layers = trained_layers(config)
    words = random_words(lengths)
    exact = layers(words.vectors, words.mask).detach()
    found = ContextualOnCPU(layers, dtype)(words.vectors, words.mask)
    assert found.dtype == words.vectors.dtype
    torch.testing.assert_close(found, exact, **close)


def test_words_keep_their_type() -> None:
    layers = trained_layers(CONFIGS[0])
    words = random_words([9, 4])
    exact = layers(words.vectors, words.mask).detach()
    found = ContextualOnCPU(layers)(words.vectors.bfloat16(), words.mask)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, **ROUNDED)


def test_what_stands_in_padding_does_not_matter() -> None:
    layers = ContextualOnCPU(trained_layers(CONFIGS[0]), torch.float32)
    words = random_words([9, 4])
    garbage = words.vectors + (1 - words.mask[..., None]) * torch.randn(9, 24)
    expected = layers(words.vectors, words.mask)
    torch.testing.assert_close(layers(garbage, words.mask), expected)


def test_they_take_the_place_of_a_models_layers() -> None:
    model = TK(TKConfig(size=24, contextual=CONFIGS[0]))
    model.contextual = trained_layers(CONFIGS[0])
    query, doc = random_words([3, 5]), random_words([9, 7], seed=1)
    expected = model.interact(model.query_words(query), model.doc_words(doc)).score
    model.contextual = ContextualOnCPU(model.contextual, torch.float32)
    found = model.interact(model.query_words(query), model.doc_words(doc)).score
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("rows", [1, 7, 700])
def test_packed_weights_change_nothing(activation: str, rows: int) -> None:
    linear = torch.nn.Linear(30, 20)
    x = torch.randn(rows, 30).bfloat16()
    packed = Packed(linear, torch.bfloat16, activation)
    expected = torch.nn.functional.linear(x, linear.weight.bfloat16(), linear.bias.bfloat16())
    expected = expected.relu() if activation == "relu" else expected
    torch.testing.assert_close(packed(x), expected, rtol=0.02, atol=0.02)


def test_without_the_calls_that_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, words = trained_layers(CONFIGS[0]), random_words([9, 4, 4, 1])
    expected = ContextualOnCPU(layers)(words.vectors, words.mask)
    monkeypatch.setattr(doc_encoders, "_packs", lambda: False)
    plain = ContextualOnCPU(layers)
    assert all(part.packed is None for part in plain.modules() if isinstance(part, Packed))
    found = plain(words.vectors, words.mask)
    torch.testing.assert_close(found, expected, **ROUNDED)


def test_a_document_without_words_stays_empty() -> None:
    layers, words = trained_layers(CONFIGS[0]), random_words([3, 0, 5])
    found = ContextualOnCPU(layers, torch.float32)(words.vectors, words.mask)
    expected = layers(words.vectors, words.mask).detach()
    torch.testing.assert_close(found, expected, **EXACT)
    nothing = random_words([0])
    assert (ContextualOnCPU(layers)(nothing.vectors, nothing.mask) == 0).all()


def test_few_numbers_of_rows_ever_reach_the_products() -> None:
    """oneDNN keeps a kernel for each: texts of many lengths took half a gigabyte that way."""
    rounded = {rows: rounded_up(rows) for rows in range(1, 4097)}
    assert len(set(rounded.values())) <= 64
    assert all(
        rows <= up <= max(16, rows * 9 / 8 + 1) for rows, up in rounded.items() if rows > 128
    )
    assert all(rows <= up < rows + 16 for rows, up in rounded.items() if rows <= 128)
