"""Recorded functions: plain calls on the CPU, the same results replayed on a GPU."""

import pytest
import torch
from torch import Tensor

from glassrank.rerank.torch_backend import Replayed, pad_to


def mixed(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    return first @ second.T, (first * 2).relu()


def test_a_plain_call_without_a_gpu() -> None:
    first, second = torch.randn(3, 4), torch.randn(5, 4)
    product, doubled = Replayed(mixed, "cpu")(first, second)
    assert torch.equal(product, mixed(first, second)[0])
    assert torch.equal(doubled, mixed(first, second)[1])


def test_nothing_is_kept_for_a_backward_pass() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    result = Replayed(lambda x: x @ weight, "cpu")(torch.randn(2, 4))
    assert not result.requires_grad


@pytest.mark.parametrize(("length", "padded"), [(3, 4), (4, 4), (5, 8), (9, 9)])
def test_rows_get_the_next_length(length: int, padded: int) -> None:
    rows = torch.arange(1, 2 * length + 1).view(2, length)
    found = pad_to(rows, (4, 8))
    assert found.shape == (2, padded)
    assert torch.equal(found[:, :length], rows)
    assert (found[:, length:] == 0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_replay_sees_new_inputs_of_every_shape() -> None:
    replayed = Replayed(mixed, "cuda")
    for words in (3, 7, 3):
        for _ in range(2):
            first, second = torch.randn(words, 4), torch.randn(5, 4)
            for found, expected in zip(replayed(first, second), mixed(first, second), strict=True):
                torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-3)
