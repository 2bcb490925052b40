"""KNRM: kernel pooling over plain word vectors.

C. Xiong, Z. Dai, J. Callan, Z. Liu, R. Power, "End-to-End Neural Ad-hoc Ranking with Kernel
Pooling", SIGIR 2017. A very narrow kernel at 1 counts exact matches, the others soft ones.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from glassrank.models.contract import Output, WordRanker, Words, WordTable
from glassrank.nn.match import FLOOR, KernelBank, Kernels, Readout, kernel_pool, match_matrix, unit

SCALE = 0.01
"""Keeps logarithms of soft counts near one; a constant in the authors' code."""


@dataclass(frozen=True)
class KNRMConfig:
    """Vectors of this size, and these kernels."""

    size: int = 300
    kernels: Kernels = field(default_factory=lambda: Kernels.eleven(exact_width=1e-4))


class KNRM(WordRanker):
    """One match matrix of plain word vectors, pooled by kernels."""

    name = "knrm"
    config_type = KNRMConfig
    exact = True
    summands = ("log",)

    def __init__(self, config: KNRMConfig, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        self.kernels = KernelBank(config.kernels)
        self.weights = nn.Parameter(torch.empty(len(config.kernels)).uniform_(-0.014, 0.014))

    def query_words(self, words: Words) -> Words:
        return words.with_vectors(unit(words.vectors))

    doc_words = query_words

    def interact(self, query: Words, doc: Words) -> Output:
        similarity = match_matrix(query.vectors, doc.vectors, query.mask, doc.mask)  # (B, Q, D)
        signal = log_counts(similarity, query.mask, doc.mask, self.kernels)  # (B, Q, K)
        part = signal * self.weights  # (B, Q, K)
        parts = {"log": part, "log_signal": signal, "similarity": similarity}
        return Output(part.sum((1, 2)), parts)

    def readouts(self) -> list[Readout]:
        return [Readout(SCALE * self.weights, torch.zeros_like(self.weights))]


def log_counts(
    similarity: Tensor, query_mask: Tensor, doc_mask: Tensor, kernels: KernelBank
) -> Tensor:
    """Scaled logarithms of the soft counts, none for padding: (B, Q, D) to (B, Q, K)."""
    counts = kernel_pool(similarity, query_mask, doc_mask, kernels)
    return SCALE * counts.clamp(min=FLOOR).log() * query_mask[..., None]
