"""Attention by matrix tiles, beside PyTorch's; where there are none, these tests say so."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

pytest.importorskip("numba")
from glassrank.nn.cpu import attention
from glassrank.nn.cpu.attention import CHANNELS, attend_within

HEADS = 3
tiles = pytest.mark.skipif(
    not attention.usable(torch.bfloat16, CHANNELS),
    reason="this processor has no matrix tiles",
)


def projected(lengths: list[int], seed: int = 0, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(sum(lengths), 3 * HEADS * CHANNELS, generator=generator)
    return (spread * rows).bfloat16()


def plain(rows: Tensor, lengths: list[int], scale: float) -> Tensor:
    """In float32, a document at a time."""
    found = [torch.empty(0, HEADS * CHANNELS)]
    for part in torch.split(rows.float(), lengths):
        query, key, value = part.view(len(part), 3, HEADS, CHANNELS).permute(1, 2, 0, 3)
        attended = functional.scaled_dot_product_attention(query, key, value, scale=scale)
        found.append(attended.transpose(0, 1).flatten(1))
    return torch.cat(found)


@tiles
@given(
    st.lists(st.integers(0, 80), min_size=1, max_size=6), st.integers(0, 1000), st.floats(0.01, 1.0)
)
@settings(deadline=None, max_examples=40)
def test_same_as_plain_attention(lengths: list[int], seed: int, scale: float) -> None:
    rows = projected(lengths, seed)
    found = attend_within(rows, np.array(lengths), HEADS, scale)
    assert found.dtype == torch.bfloat16 and found.shape == (len(rows), HEADS * CHANNELS)
    torch.testing.assert_close(found.float(), plain(rows, lengths, scale), rtol=0.02, atol=0.05)


@tiles
def test_a_long_document() -> None:
    rows = projected([700])
    found = attend_within(rows, np.array([700]), HEADS, 0.2)
    torch.testing.assert_close(found.float(), plain(rows, [700], 0.2), rtol=0.02, atol=0.05)


@tiles
def test_one_word_that_all_look_at() -> None:
    """Scores far apart: shares of nearly one and nearly nothing."""
    rows = projected([40], spread=40.0)
    found = attend_within(rows, np.array([40]), HEADS, 1.0)
    torch.testing.assert_close(found.float(), plain(rows, [40], 1.0), rtol=0.02, atol=0.5)


@tiles
def test_documents_do_not_see_each_other() -> None:
    rows = projected([20, 37])
    alone = attend_within(rows[20:].contiguous(), np.array([37]), HEADS, 0.2)
    both = attend_within(rows, np.array([20, 37]), HEADS, 0.2)
    assert torch.equal(both[20:], alone)


def test_other_sizes_are_left_to_others() -> None:
    assert not attention.usable(torch.bfloat16, 16)
    assert not attention.usable(torch.float32, CHANNELS)
