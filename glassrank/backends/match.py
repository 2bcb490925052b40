"""The match matrix of query and document tokens, and kernel pooling (C. Xiong et al., "End-to-end
neural ad-hoc ranking with kernel pooling", SIGIR 2017): a kernel is a Gaussian around a similarity,
and its sum over the document counts the tokens near that similarity.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.configs import Kernels

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
    """1 where a query token (B, Q) meets a document token (B, D), else 0."""
    return query_mask[:, :, None] * doc_mask[:, None, :]  # (B, Q, D)


def non_negative(weights: Tensor) -> Tensor:
    """Weights by a softplus: a closer match never counts against a document."""
    return functional.softplus(weights)


class KernelBank(nn.Module):
    """Kernels as tensors that move with the model, and are neither trained nor saved: they are made
    on the CPU even where a model is first built on the meta device."""

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
