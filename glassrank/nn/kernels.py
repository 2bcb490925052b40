"""Kernel pooling: soft counts of how many document words are how similar to a query word.

Xiong et al., "End-to-end neural ad-hoc ranking with kernel pooling", SIGIR 2017. A kernel is a
Gaussian around a similarity; its sum over the document counts the words near that similarity.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.nn.match import pair_mask

FLOOR = 1e-10
"""Sums are kept above this before a logarithm."""


@dataclass(frozen=True)
class Kernels:
    """Centers and widths, as data: any number of them, evenly spaced or not."""

    centers: tuple[float, ...]
    widths: tuple[float, ...]
    at_least: bool = False
    """A kernel counts the words that are at least as similar as its center, and those below the
    less, the farther they are. Its value then never falls as similarity rises. Otherwise it counts
    those around its center, as in the papers."""

    def __post_init__(self) -> None:
        if len(self.centers) != len(self.widths):
            raise ValueError(f"{len(self.centers)} centers need as many widths, not {self.widths}")
        if not self.centers or not all(1e-6 <= width <= 100 for width in self.widths):
            raise ValueError(f"kernels need widths of 0.000001 to 100, found {self.widths}")
        if not all(-100 <= center <= 100 for center in self.centers):
            raise ValueError(f"kernels need centers of -100 to 100, found {self.centers}")

    @classmethod
    def eleven(cls, exact_width: float = 0.1) -> "Kernels":
        """1.0, then 0.9 down to -0.9 in steps of 0.2, as in the TK and KNRM papers."""
        centers = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
        return cls(centers, (exact_width, *(0.1,) * 10))

    @classmethod
    def rising(cls) -> "Kernels":
        """At least 1.0, 0.9 and so on down to 0.0: what pretrained encoders' cosines are."""
        return cls(tuple(step / 10 for step in range(10, -1, -1)), (0.1,) * 11, at_least=True)

    def __len__(self) -> int:
        return len(self.centers)


@dataclass(frozen=True)
class Readout:
    """How the soft counts of one match matrix become its share of the score:

        sum over words q and kernels k of weight_q (log_k ln max(count, FLOOR)
                                                    + length_k count / (document length + 1))

    The columns say which part of the encoded words takes part in this matrix: all of them, or one
    size of n-grams.
    """

    log: Tensor  # (K,)
    length: Tensor  # (K,)
    query_columns: slice = field(default_factory=lambda: slice(None))
    doc_columns: slice = field(default_factory=lambda: slice(None))


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
