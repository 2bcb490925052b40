"""The match matrix, how alike each query word and each document word are, and how it is pooled: by
the strongest signals, by kernels, or by n-grams, and how rows of signals become one score.

k-max pooling takes the strongest signals of each row, strongest first. Kernel pooling gives soft
counts of how many document words are how similar to a query word (Xiong et al., "End-to-end neural
ad-hoc ranking with kernel pooling", SIGIR 2017): a kernel is a Gaussian around a similarity, and
its sum over the document counts the words near that similarity. Kernels as data, and how fast forms
share their exponentials, are in `configs.py`. N-grams, and the score of rows, are what the
PACRR family shares.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.configs import FLOOR, Kernels, ScoringHead

__all__ = [
    "FLOOR",
    "KernelBank",
    "Kernels",
    "ScoringHead",
    "kernel_pool",
    "kernel_values",
    "match_matrix",
    "pair_mask",
    "rising",
    "unit",
]

_EPSILON = 1e-13


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length one; a zero vector stays zero, so that its similarity is 0."""
    lengths: Tensor = vectors.norm(dim=-1, keepdim=True)
    return vectors / (lengths + _EPSILON)


def match_matrix(query: Tensor, doc: Tensor, query_mask: Tensor, doc_mask: Tensor) -> Tensor:
    """Cosines of unit vectors (B, Q, E) and (B, D, E), zero where either side is padding."""
    cosines = query @ doc.transpose(-1, -2)  # (B, Q, D)
    return cosines * pair_mask(query_mask, doc_mask)


def pair_mask(query_mask: Tensor, doc_mask: Tensor) -> Tensor:
    """1 where a query word (B, Q) meets a document word (B, D), else 0."""
    return query_mask[:, :, None] * doc_mask[:, None, :]  # (B, Q, D)


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


def ngram_name(n: int) -> str:
    """unigram, bigram, trigram, 4-gram, …"""
    return {1: "unigram", 2: "bigram", 3: "trigram"}.get(n, f"{n}-gram")
