"""What Triton's kernels must compute, beside the plain code: run by `test_triton`.

Whether Triton interprets its programs or compiles them is settled when it is imported, for the
whole process. So these cases have a process of their own; they take the GPU where they may.
"""

import os

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from glassrank.backends.configs import FLOOR, Kernels
from glassrank.backends.gpu.kernels import Tuning, pool_triton
from glassrank.backends.match import KernelBank, kernel_pool, match_matrix, unit
from glassrank.errors import InputError
from glassrank.models.late_interaction import ContextualConfig
from glassrank.research.papers.contextual import ContextualLayers, Norm
from glassrank.research.papers.gpu_attention import attend
from glassrank.research.papers.gpu_contextual import ContextualOnGPU, add_norm

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"

KERNELS = {
    "tk": Kernels.eleven(),
    "knrm": Kernels.eleven(exact_width=1e-3),
    "rising": Kernels.rising(),
    "uneven": Kernels((0.8, 0.1, -0.2), (0.1, 0.2, 0.05)),
    "one": Kernels((0.3,), (0.1,)),
    "narrow": Kernels(tuple(step / 10 - 1 for step in range(21)), (0.05,) * 21),
}


class Case:
    """Documents of these lengths, out of order, among rows and columns that belong to none."""

    def __init__(
        self,
        lengths: list[int],
        words: int = 5,
        size: int = 20,
        stride: int = 24,
        dtype: torch.dtype = torch.float32,
        kernels: Kernels = KERNELS["tk"],
        first_column: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(len(lengths) + words + size)
        self.lengths = torch.tensor(lengths)
        starts = self.lengths.cumsum(0) - self.lengths + 3
        order = torch.randperm(len(lengths), generator=generator)
        self.starts, self.lengths = starts[order], self.lengths[order]
        rows = int(sum(lengths)) + 6
        values = torch.randn(rows, stride, generator=generator) + 0.5
        used = slice(first_column, first_column + size)
        values[:, used] = unit(values[:, used])
        self.scales = None
        if dtype == torch.int8:
            self.scales = values.abs().amax(1) / 127  # (T,)
            values = (values / self.scales[:, None]).round()
        self.vectors = values.to(dtype)  # (T, S)
        self.rows = self.vectors[:, used].float()  # (T, E)
        if self.scales is not None:
            self.rows = self.rows * self.scales[:, None]
        self.query = unit(torch.randn(words, size, generator=generator) + 0.5)
        if dtype == torch.float32:
            self.query[0] = self.rows[3]  # an exact match
        self.weights = torch.rand(words, generator=generator)
        self.kernels, self.first_column = kernels, first_column
        self.log, self.length = torch.rand(2, len(kernels), generator=generator)

    def plain(self) -> tuple[Tensor, Tensor]:
        longest = max(1, int(self.lengths.max()))
        places = self.starts[:, None] + torch.arange(longest)  # (n, D)
        doc_mask = (torch.arange(longest) < self.lengths[:, None]).float()
        docs = self.rows[places.clamp(max=len(self.rows) - 1)]  # (n, D, E)
        query = self.query.expand(len(docs), *self.query.shape)
        query_mask = torch.ones(query.shape[:2])
        similarity = match_matrix(query, docs, query_mask, doc_mask)  # (n, Q, D)
        counts = kernel_pool(similarity, query_mask, doc_mask, KernelBank(self.kernels))
        shares = counts / (self.lengths[:, None, None] + 1)
        signal = self.log * counts.clamp(min=FLOOR).log() + self.length * shares  # (n, Q, K)
        return (signal * self.weights[:, None]).sum((1, 2)), counts

    def fused(
        self, tuning: Tuning | None = None, readout: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> Tensor:
        weights, log, length = readout or (self.weights, self.log, self.length)
        return pool_triton(
            self.query.to(DEVICE),
            weights.to(DEVICE),
            self.vectors.to(DEVICE),
            None if self.scales is None else self.scales.to(DEVICE),
            self.starts.to(DEVICE),
            self.lengths.to(DEVICE),
            self.kernels,
            log.to(DEVICE),
            length.to(DEVICE),
            first_column=self.first_column,
            tuning=tuning,
        ).cpu()

    def check(self, tuning: Tuning | None = None) -> None:
        exact_scores, exact_counts = self.plain()
        torch.testing.assert_close(self.fused(tuning), exact_scores, rtol=1e-4, atol=1e-5)
        # Soft counts, some kernels' of one word at a time: a readout of this share alone.
        for kernel in range(0, len(self.kernels), 3):
            word = kernel % len(self.query)
            one_word, one_kernel = torch.zeros(len(self.query)), torch.zeros(len(self.kernels))
            one_word[word] = one_kernel[kernel] = 1
            shares = self.fused(tuning, (one_word, 0 * one_kernel, one_kernel))
            counts = shares * (self.lengths + 1)
            torch.testing.assert_close(counts, exact_counts[:, word, kernel], rtol=1e-4, atol=FLOOR)


@pytest.mark.parametrize("name", KERNELS)
def test_any_kernels(name: str) -> None:
    Case([40, 0, 1, 32, 7], kernels=KERNELS[name]).check()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("kernels", ["tk", "uneven"])
def test_any_stored_type(dtype: torch.dtype, kernels: str) -> None:
    Case([33, 1, 12], dtype=dtype, kernels=KERNELS[kernels]).check()


@pytest.mark.parametrize(("words", "size", "stride"), [(1, 3, 3), (20, 70, 80), (40, 12, 12)])
def test_any_sizes(words: int, size: int, stride: int) -> None:
    Case([9, 40], words=words, size=size, stride=stride).check()


def test_columns_in_the_middle_of_a_row() -> None:
    Case([9, 40], size=8, stride=24, first_column=8).check()


@pytest.mark.parametrize("tuning", [Tuning(64, 4, 3, 2, 1), Tuning(32, 2, 2, 1, 2)])
def test_any_tuning(tuning: Tuning) -> None:
    Case([65, 3, 0, 31]).check(tuning)


def test_no_documents() -> None:
    case = Case([3])
    case.starts, case.lengths = case.starts[:0], case.lengths[:0]
    assert case.fused().shape == (0,)


def test_eight_bits_without_scales_are_refused() -> None:
    case = Case([3], dtype=torch.int8)
    case.scales = None
    with pytest.raises(InputError, match=r"int8.*without scales"):
        case.fused()


@pytest.mark.parametrize(("heads", "size"), [(3, 2), (2, 32)])
def test_attention_without_its_matrix(heads: int, size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    projected = torch.randn(3, 70, 3 * heads * size, generator=generator)
    lengths = torch.tensor([70, 1, 65])
    found = attend(projected.to(DEVICE), lengths.int().to(DEVICE), heads, 0.3).cpu()
    inside = torch.arange(70) < lengths[:, None]  # (B, L)
    split = torch.unflatten(projected, -1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    exact = functional.scaled_dot_product_attention(
        *split, attn_mask=inside[:, None, None, :], scale=0.3
    )
    exact = exact.transpose(1, 2).flatten(2)
    torch.testing.assert_close(found[inside], exact[inside], rtol=1e-4, atol=1e-5)
    assert found[~inside].abs().max() < 1e9  # padding may hold anything that is a number


def test_a_sum_and_its_norm_in_one_pass() -> None:
    norm = Norm(20)
    torch.manual_seed(0)
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    x, residual = (functional.pad(torch.randn(7, 20), (0, 12)) for _ in range(2))
    given = [one.detach().to(DEVICE) for one in (x, residual, norm.gain, norm.bias)]
    found = add_norm(*given).cpu()
    exact = norm((x + residual)[:, :20]).detach()
    torch.testing.assert_close(found[:, :20], exact, rtol=1e-5, atol=1e-5)
    assert (found[:, 20:] == 0).all()


def test_layers_as_a_gpu_runs_them() -> None:
    torch.manual_seed(0)
    config = ContextualConfig(layers=2, heads=3, attention_size=6, feed_forward=10)
    layers = ContextualLayers(20, config)
    words = torch.randn(3, 9, 20)
    mask = (torch.arange(9) < torch.tensor([9, 4, 1])[:, None]).float()
    exact = layers(words, mask).detach()
    fast = ContextualOnGPU(layers.to(DEVICE), torch.float32)
    found = fast(words.to(DEVICE), mask.to(DEVICE)).cpu()
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-5)
