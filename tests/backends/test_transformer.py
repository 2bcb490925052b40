"""Layers as BERT has them, and cheaper orders of the same sums."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassrank.backends.attention import make_key_bias
from glassrank.backends.configs import EncoderConfig
from glassrank.backends.transformer import Encoder, Layer
from glassrank.errors import InputError
from glassrank.research.papers.mores import CrossAttention

SMALL = EncoderConfig(vocabulary=50, size=24, layers=3, heads=4, feed_forward=32, positions=20)


def with_larger_weights(module: nn.Module, seed: int = 0) -> nn.Module:
    """Fresh ones are so small that mistakes would not show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def rows(lengths: list[int], size: int = 24, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).float()
    return torch.randn(len(lengths), max(lengths), size, generator=generator), mask


def test_a_layer_is_pytorchs_own() -> None:
    ours = with_larger_weights(Layer(SMALL))
    theirs = nn.TransformerEncoderLayer(
        24, 4, 32, activation="gelu", batch_first=True, layer_norm_eps=1e-12
    ).eval()
    pairs = {
        "self_attn.in_proj_": ours.attention.query_key_value,
        "self_attn.out_proj.": ours.attention.output,
        "linear1.": ours.feed_forward.inner,
        "linear2.": ours.feed_forward.outer,
        "norm1.": ours.attention.norm,
        "norm2.": ours.feed_forward.norm,
    }
    theirs.load_state_dict(
        {
            f"{name}{kind}": getattr(p, kind)
            for name, p in pairs.items()
            for kind in ("weight", "bias")
        }
    )
    x, mask = rows([7, 4, 1])
    with torch.no_grad():
        found = ours(x, make_key_bias(mask, x))
        wanted = theirs(x, src_key_padding_mask=mask == 0)
    real = mask.bool()
    torch.testing.assert_close(found[real], wanted[real], rtol=1e-5, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_the_first_row_alone_is_the_first_row(lengths: list[int], seed: int) -> None:
    layer = with_larger_weights(Layer(SMALL), seed)
    x, mask = rows(lengths, seed=seed)
    bias = make_key_bias(mask, x)
    with torch.no_grad():
        torch.testing.assert_close(
            layer.first_row(x, bias), layer(x, bias)[:, 0], rtol=1e-5, atol=1e-5
        )


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    query=st.integers(1, 8),
    shared=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_document_may_be_projected_before_or_not_at_all(
    lengths: list[int], query: int, shared: bool, seed: int
) -> None:
    cross = with_larger_weights(CrossAttention(24, 16, 4, 0.0, 1e-12), seed)
    doc, mask = rows(lengths, 16, seed)
    x, _ = rows([query] * (1 if shared else len(lengths)), seed=seed + 1)
    bias = make_key_bias(mask, x)
    with torch.no_grad():
        searched = cross(x, doc, bias)  # without a projection where the query is short
        projected = cross(x, cross.project(doc), bias)
    with torch.enable_grad():
        learning = cross(x, doc, bias)
    assert searched.shape == (len(lengths), query, 24)
    torch.testing.assert_close(searched, projected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(searched, learning, rtol=1e-5, atol=1e-5)


def test_a_short_query_needs_no_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    cross = CrossAttention(24, 16, 4, 0.0, 1e-12).eval()
    monkeypatch.setattr(cross, "project", lambda states: pytest.fail("documents were projected"))
    x, _ = rows([5])
    doc, _ = rows([9], 16)
    with torch.no_grad():
        cross(x, doc, None)


def test_dropout_drops_in_training_alone() -> None:
    layer = Layer(SMALL)
    x, _ = rows([6])
    assert torch.equal(layer.eval()(x, None), layer(x, None))
    assert not torch.equal(layer.train()(x, None), layer(x, None))
    assert not torch.equal(layer.first_row(x, None), layer.first_row(x, None))


def test_maps_say_who_attended_to_whom() -> None:
    encoder = with_larger_weights(Encoder(SMALL))
    ids = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    mask = (ids > 0).float()
    maps: list[Tensor] = []
    with torch.no_grad():
        seen = encoder(ids, mask, maps)
        torch.testing.assert_close(seen, encoder(ids, mask), rtol=1e-5, atol=1e-5)
    assert [tuple(found.shape) for found in maps] == [(2, 4, 4, 4)] * 3
    for found in maps:
        torch.testing.assert_close(found.sum(-1), torch.ones(2, 4, 4))
        assert not found[1, :, :, 2:].any()  # nobody attends to padding


def test_padding_does_not_change_an_encoding() -> None:
    encoder = with_larger_weights(Encoder(SMALL))
    ids = torch.tensor([[3, 4, 5]])
    wider = torch.tensor([[3, 4, 5, 9, 9]])  # whatever stands in padding
    with torch.no_grad():
        alone = encoder(ids, torch.ones(1, 3))
        padded = encoder(wider, torch.tensor([[1.0, 1, 1, 0, 0]]))
    torch.testing.assert_close(padded[:, :3], alone, rtol=1e-5, atol=1e-5)


def test_attention_in_short_floats_is_near_that_in_long_ones() -> None:
    """With heads as BERT has them: a compiled kernel for them must be right too."""
    torch.manual_seed(0)
    cross = CrossAttention(768, 768, 12, 0.0, 1e-12).eval()
    x, doc = torch.randn(1, 4, 768), torch.randn(2, 9, 768)
    with torch.no_grad():
        exact = cross(x, doc, None)
        short = cross.bfloat16()
        for given in (doc.bfloat16(), short.project(doc.bfloat16())):
            found = short(x.bfloat16(), given, None).float()
            assert (found - exact).abs().max() < 0.05


def test_a_text_that_is_too_long_is_refused() -> None:
    encoder = Encoder(SMALL)
    with pytest.raises(InputError, match="21 subwords is longer than the 20"):
        encoder(torch.ones(1, 21).long(), torch.ones(1, 21))


@pytest.mark.parametrize("name", ["dropout", "epsilon"])
@pytest.mark.parametrize("value", [-0.1, 1e300, float("nan")])
def test_shares_are_from_0_to_1(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name}: expected a number from 0 to 1"):
        EncoderConfig(**{name: value})  # type: ignore[arg-type]


def test_heads_must_divide_the_size() -> None:
    with pytest.raises(InputError, match="5 heads cannot share a size of 24"):
        EncoderConfig(size=24, heads=5)
