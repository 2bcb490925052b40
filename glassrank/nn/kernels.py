"""Kernel pooling: soft counts of how many document words are how similar to a query word.

Xiong et al., "End-to-end neural ad-hoc ranking with kernel pooling", SIGIR 2017. A kernel is a
Gaussian around a similarity; its sum over the document counts the words near that similarity.
Kernels as data, and how fast forms share their exponentials, are in `kernel_runs.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.nn.kernel_runs import FLOOR, Kernels, Readout
from glassrank.nn.match import pair_mask

__all__ = [
    "FLOOR",
    "KernelBank",
    "Kernels",
    "Readout",
    "kernel_pool",
    "kernel_values",
    "rising",
]


def rising(weights: Tensor) -> Tensor:
    """Weights that are never negative: with kernels that rise with similarity, a closer match then
    never counts against a document."""
    return functional.softplus(weights)


class KernelBank(nn.Module):
    """Kernels as tensors that move with the model and are not trained, and so not saved: they are
    made on the CPU even where a model is first built without memory."""

    centers: Tensor
    widths: Tensor

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self.at_least = kernels.at_least
        centers, widths = (
            torch.tensor(values, device="cpu") for values in (kernels.centers, kernels.widths)
        )
        self.register_buffer("centers", centers, persistent=False)  # (K,)
        self.register_buffer("widths", widths, persistent=False)  # (K,)


def kernel_values(similarity: Tensor, bank: KernelBank) -> Tensor:
    """exp(-(m - mu)^2 / 2 sigma^2) of each similarity and kernel: (…) to (…, K). Kernels that
    count what is at least as similar are 1 from their center on."""
    distance = similarity[..., None] - bank.centers  # (…, K)
    if bank.at_least:
        distance = distance.clamp(max=0)
    return torch.exp(-0.5 * (distance / bank.widths) ** 2)


def kernel_pool(
    similarity: Tensor, query_mask: Tensor, doc_mask: Tensor, bank: KernelBank
) -> Tensor:
    """Sums over the document: (B, Q, D) to (B, Q, K). The plain, differentiable form.

    Padding must be masked once more here: its similarity is 0, which kernels near 0 would count.
    """
    values = kernel_values(similarity, bank)  # (B, Q, D, K)
    return (values * pair_mask(query_mask, doc_mask)[..., None]).sum(2)
