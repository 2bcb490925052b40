"""TK: contextual words, compared once, counted by kernels.

S. Hofstätter, M. Zlabinger, A. Hanbury, "Interpretable & Time-Budget-Constrained Contextualization
for Re-Ranking", ECAI 2020. Query and document pass the same small transformer without seeing each
other; their only meeting is one matrix of similarities, so the score is a sum over query words and
kernels on two paths: logarithms of the soft counts, and counts divided by the document's length.
"""

import math

import torch
from torch import Tensor, nn

from glassrank.models.contract import Output, WordRanker, Words, WordTable
from glassrank.models.served_families import TKConfig, TKFamily
from glassrank.nn.match import FLOOR, KernelBank, Readout, kernel_pool, match_matrix, rising, unit
from glassrank.nn.transformer import ContextualLayers

__all__ = ["TK", "TKConfig", "two_paths"]


class TK(TKFamily, WordRanker):
    """Contextual words, one match matrix, kernels on two paths."""

    def __init__(self, config: TKConfig, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        count = len(config.kernels)
        self.contextual = ContextualLayers(config.size, config.contextual)
        self.kernels = KernelBank(config.kernels)
        self.scale = nn.Parameter(torch.tensor(0.01))
        self.log_weights = _small(count)  # (K,)
        self.length_weights = _small(count)  # (K,)
        self.path_weights = nn.Parameter(torch.empty(2).uniform_(-(0.5**0.5), 0.5**0.5))
        self.term_weight = nn.Linear(config.size, 1) if config.term_weights else None
        if self.term_weight is not None:  # begins as the paper's model: every word counts 1
            nn.init.zeros_(self.term_weight.weight)
            nn.init.zeros_(self.term_weight.bias)

    def query_words(self, words: Words) -> Words:
        """Unit vectors; a query word's own weight travels in the place of its idf."""
        weight = words.mask
        if self.term_weight is not None:
            weight = weight * 2 * torch.sigmoid(self.term_weight(words.vectors)).squeeze(-1)
        return Words(self._encode(words).vectors, words.mask, weight)

    def doc_words(self, words: Words) -> Words:
        return self._encode(words)

    def _encode(self, words: Words) -> Words:
        return words.with_vectors(unit(self.contextual(words.vectors, words.mask)))

    def interact(self, query: Words, doc: Words) -> Output:
        similarity = match_matrix(query.vectors, doc.vectors, query.mask, doc.mask)  # (B, Q, D)
        counts = kernel_pool(similarity, query.mask, doc.mask, self.kernels)  # (B, Q, K)
        length = doc.mask.sum(-1)[:, None, None] + 1  # (B, 1, 1)
        weight = query.idf[..., None]  # (B, Q, 1)
        log_signal = self.scale * counts.clamp(min=FLOOR).log2() * weight  # (B, Q, K)
        length_signal = self.scale * (counts / length) * weight  # (B, Q, K)
        return two_paths(similarity, (log_signal, length_signal), self._weights())

    def readouts(self) -> list[Readout]:
        log_weights, length_weights = self._weights()
        return [Readout(log_weights * self.scale / math.log(2), length_weights * self.scale)]

    def _weights(self) -> tuple[Tensor, Tensor]:
        """Of kernels on each path, (K,): the path's weight times the kernel's."""
        log, length = self.path_weights
        if self.config.monotone:
            return log.abs() * rising(self.log_weights), length.abs() * rising(self.length_weights)
        return log * self.log_weights, length * self.length_weights


def two_paths(
    similarity: Tensor, signals: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor]
) -> Output:
    """The score as the sum of both paths: signals (B, Q, K) times the weights (K,) of kernels."""
    log_part, length_part = (
        weight * signal for weight, signal in zip(weights, signals, strict=True)
    )
    return Output(
        score=log_part.sum((1, 2)) + length_part.sum((1, 2)),
        parts={
            "log": log_part,
            "length": length_part,
            "log_signal": signals[0],
            "length_signal": signals[1],
            "similarity": similarity,
        },
    )


def _small(count: int) -> Tensor:
    """Small kernel weights: the paper's rankings begin near zero."""
    return nn.Parameter(torch.empty(count).uniform_(-0.014, 0.014))
