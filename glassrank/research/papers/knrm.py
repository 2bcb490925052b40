"""KNRM and CONV-KNRM: kernel pooling over plain word vectors, and over n-grams of both sides.

C. Xiong, Z. Dai, J. Callan, Z. Liu, R. Power, "End-to-End Neural Ad-hoc Ranking with Kernel
Pooling", SIGIR 2017. A very narrow kernel at 1 counts exact matches, the others soft ones.

Z. Dai, C. Xiong, J. Callan, Z. Liu, "Convolutional Neural Networks for Soft-Matching N-Grams in
Ad-hoc Search", WSDM 2018. Convolutions of widths 1 to 3 turn word vectors into n-gram vectors;
every query n-gram size meets every document n-gram size: nine match matrices, pooled as in KNRM.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.configs import FLOOR, Kernels, ScoringHead
from glassrank.backends.match import KernelBank, kernel_pool, match_matrix, unit
from glassrank.models.model import ModelInfo, Output, TokenEmbeddings
from glassrank.models.torch_models import EmbeddingTable, WordRanker

SCALE = 0.01
"""Keeps logarithms of soft counts near one; a constant in the authors' code."""


@dataclass(frozen=True)
class KNRMConfig:
    """Vectors of this size, and these kernels."""

    size: int = 300
    kernels: Kernels = field(default_factory=lambda: Kernels.eleven(exact_width=1e-4))
    idf: bool = False
    """Whether a query word counts by its idf; in the paper all count 1."""


class KNRM(WordRanker):
    """One match matrix of plain word vectors, pooled by kernels."""

    info = ModelInfo("knrm", KNRMConfig, is_additive=True, summands=("log",), has_term_weights=True)

    def __init__(self, config: KNRMConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.kernels = KernelBank(config.kernels)
        self.weights = small_weights(len(config.kernels))

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """Unit vectors; a query word's weight stands in the place of its idf."""
        weight = words.idf if self.config.idf else words.mask
        return TokenEmbeddings(unit(words.vectors), words.mask, weight)

    def doc_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        return words.with_vectors(unit(words.vectors))

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        similarity = match_matrix(query.vectors, doc.vectors, query.mask, doc.mask)  # (B, Q, D)
        signal = log_counts(similarity, query.mask, doc.mask, self.kernels)  # (B, Q, K)
        signal = signal * query.idf[..., None]
        part = signal * self.weights  # (B, Q, K)
        parts = {"log": part, "log_signal": signal, "similarity": similarity}
        return Output(part.sum((1, 2)), parts)

    def scoring_heads(self) -> list[ScoringHead]:
        return [ScoringHead(SCALE * self.weights, torch.zeros_like(self.weights))]


def small_weights(*shape: int) -> Tensor:
    """Small kernel weights: the papers' rankers begin near zero."""
    return nn.Parameter(torch.empty(shape).uniform_(-0.014, 0.014))


def log_counts(
    similarity: Tensor, query_mask: Tensor, doc_mask: Tensor, kernels: KernelBank
) -> Tensor:
    """Scaled logarithms of the soft counts, none for padding: (B, Q, D) to (B, Q, K)."""
    counts = kernel_pool(similarity, query_mask, doc_mask, kernels)
    return SCALE * counts.clamp(min=FLOOR).log() * query_mask[..., None]


@dataclass(frozen=True)
class ConvKNRMConfig:
    """The defaults are those of the paper."""

    size: int = 300
    channels: int = 128
    ngrams: int = 3
    kernels: Kernels = field(default_factory=lambda: Kernels.eleven(exact_width=1e-3))
    mask_words: bool = True
    """False: n-grams that reach into padding see whatever stands there, as in the TK authors'
    code, which relies on padding being zero."""


class ConvKNRM(WordRanker):
    """Kernels over every pair of n-gram sizes."""

    info = ModelInfo(
        "conv_knrm", ConvKNRMConfig, is_additive=True, summands=("log",), stores_embeddings=True
    )

    def __init__(self, config: ConvKNRMConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.size, config.channels, n) for n in range(1, config.ngrams + 1)
        )
        self.kernels = KernelBank(config.kernels)
        # (N * N, K), the query's n-gram size counting slower
        self.weights = small_weights(config.ngrams**2, len(config.kernels))

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """Unit n-gram vectors (B, L, N, C)."""
        vectors = words.vectors * words.mask[..., None] if self.config.mask_words else words.vectors
        channels = vectors.transpose(1, 2)  # (B, E, L)
        ngrams = [
            torch.relu(convolution(functional.pad(channels, (0, n)))).transpose(1, 2)  # (B, L, C)
            for n, convolution in enumerate(self.convolutions)
        ]
        return words.with_vectors(unit(torch.stack(ngrams, 2)))

    doc_words = query_words

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        signals: list[Tensor] = []
        for q in query.vectors.unbind(2):  # each (B, Q, C)
            for d in doc.vectors.unbind(2):  # each (B, D, C)
                similarity = match_matrix(q, d, query.mask, doc.mask)  # (B, Q, D)
                signals.append(log_counts(similarity, query.mask, doc.mask, self.kernels))
        signal = torch.stack(signals, 2)  # (B, Q, N * N, K)
        part = signal * self.weights
        return Output(part.sum((1, 2, 3)), {"log": part, "log_signal": signal})

    def scoring_heads(self) -> list[ScoringHead]:
        """One for each of the nine matrices; words are rows of all n-gram sizes side by side."""
        sizes = [
            slice(n * self.config.channels, (n + 1) * self.config.channels)
            for n in range(self.config.ngrams)
        ]
        pairs = [(query, doc) for query in sizes for doc in sizes]
        return [
            ScoringHead(SCALE * weights, torch.zeros_like(weights), query, doc)
            for weights, (query, doc) in zip(self.weights, pairs, strict=True)
        ]
