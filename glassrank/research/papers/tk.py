"""TK: contextual words, compared once, counted by kernels; and TK for long documents, whose kernels
are pooled in windows of several sizes.

S. Hofstätter, M. Zlabinger, A. Hanbury, "Interpretable & Time-Budget-Constrained Contextualization
for Re-Ranking", ECAI 2020. Query and document pass the same small transformer without seeing each
other; their only meeting is one matrix of similarities, so the score is a sum over query words and
kernels on two paths: logarithms of the soft counts, and counts divided by the document's length.

The same, "TU Wien @ TREC Deep Learning '19", run TUW19-d3. For each size, every window gets a
score; the sorted scores are weighted, best window first, so that the model learns how much the best
passage counts and how much the rest.
"""

import math
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends import gpu
from glassrank.backends.configs import FLOOR, Kernels, ScoringHead
from glassrank.backends.match import (
    KernelBank,
    kernel_pool,
    kernel_values,
    match_matrix,
    non_negative,
    pair_mask,
    unit,
)
from glassrank.models.bi_encoders import sum_paths
from glassrank.models.late_interaction import TK_INFO, ContextualConfig, TKConfig
from glassrank.models.model import ModelInfo, Output, TokenEmbeddings
from glassrank.models.torch_models import EmbeddingTable, WordRanker
from glassrank.research.papers.contextual import ContextualLayers
from glassrank.research.papers.knrm import small_weights


class ContextualRanker(WordRanker):
    """A model over words that contextual layers have read."""

    contextual: ContextualLayers

    def doc_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        return words.with_vectors(unit(self.contextual(words.vectors, words.mask)))

    def for_gpu(self) -> Self:
        """With contextual layers in bfloat16, where Triton is installed."""
        if not gpu.usable():
            return self
        from glassrank.research.papers.gpu_contextual import ContextualOnGPU

        return self.with_modules(contextual=ContextualOnGPU(self.contextual, torch.bfloat16))


class TK(ContextualRanker):
    """Contextual words, one match matrix, kernels on two paths."""

    info = TK_INFO

    def __init__(self, config: TKConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        count = len(config.kernels)
        self.contextual = ContextualLayers(config.size, config.contextual)
        self.kernels = KernelBank(config.kernels)
        self.scale = nn.Parameter(torch.tensor(0.01))
        self.log_weights = small_weights(count)  # (K,)
        self.length_weights = small_weights(count)  # (K,)
        self.path_weights = nn.Parameter(torch.empty(2).uniform_(-(0.5**0.5), 0.5**0.5))
        self.term_weight = nn.Linear(config.size, 1) if config.term_weights else None
        if self.term_weight is not None:  # begins as the paper's model: every word counts 1
            nn.init.zeros_(self.term_weight.weight)
            nn.init.zeros_(self.term_weight.bias)

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """Unit vectors; a query word's own weight travels in the place of its idf."""
        weight = words.mask
        if self.term_weight is not None:
            weight = weight * 2 * torch.sigmoid(self.term_weight(words.vectors)).squeeze(-1)
        return TokenEmbeddings(self.doc_words(words).vectors, words.mask, weight)

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        similarity = match_matrix(query.vectors, doc.vectors, query.mask, doc.mask)  # (B, Q, D)
        counts = kernel_pool(similarity, query.mask, doc.mask, self.kernels)  # (B, Q, K)
        length = doc.mask.sum(-1)[:, None, None] + 1  # (B, 1, 1)
        weight = query.idf[..., None]  # (B, Q, 1)
        log_signal = self.scale * counts.clamp(min=FLOOR).log2() * weight  # (B, Q, K)
        length_signal = self.scale * (counts / length) * weight  # (B, Q, K)
        return sum_paths(similarity, (log_signal, length_signal), self._weights())

    def scoring_heads(self) -> list[ScoringHead]:
        log_weights, length_weights = self._weights()
        return [ScoringHead(log_weights * self.scale / math.log(2), length_weights * self.scale)]

    def _weights(self) -> tuple[Tensor, Tensor]:
        """Of kernels on each path, (K,): the path's weight times the kernel's."""
        log, length = self.path_weights
        if self.config.monotone:
            by_log, by_length = non_negative(self.log_weights), non_negative(self.length_weights)
            return log.abs() * by_log, length.abs() * by_length
        return log * self.log_weights, length * self.length_weights


@dataclass(frozen=True)
class TKWindowedConfig:
    """TK's settings, and the sizes of windows."""

    size: int = 300
    contextual: ContextualConfig = field(default_factory=ContextualConfig)
    kernels: Kernels = field(default_factory=Kernels.eleven)
    windows: tuple[int, ...] = (20, 30, 50, 80, 100, 120, 150)
    longest_doc: int = 800
    authors_padding: bool = False
    """The authors pad each size's windows on top of the padding of the sizes before, always by at
    least one empty window, and cut late windows before sorting."""

    def most_windows(self, size: int) -> int:
        """How many windows of a size the longest document has."""
        return math.ceil(self.longest_doc / size)


class TKWindowed(ContextualRanker):
    """TK over windows of several sizes, the strongest first."""

    info = ModelInfo(
        "tk_windowed",
        TKWindowedConfig,
        is_additive=True,
        summands=("sizes",),  # (B, S), by window size: its explainer divides them further
        stores_embeddings=True,
    )

    def __init__(self, config: TKWindowedConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.contextual = ContextualLayers(config.size, config.contextual)
        self.kernels = KernelBank(config.kernels)
        sizes, count = len(config.windows), len(config.kernels)
        self.kernel_weights = small_weights(sizes, count)
        self.scales = nn.Parameter(torch.full((sizes,), 0.01))
        self.rank_weights = nn.ParameterList(
            torch.full((config.most_windows(size),), 1 / config.most_windows(size))
            for size in config.windows
        )
        self.size_weights = small_weights(sizes)

    query_words = ContextualRanker.doc_words

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        # tanh flattens the top: the authors' choice, kept because trained weights depend on it
        similarity = torch.tanh(match_matrix(query.vectors, doc.vectors, query.mask, doc.mask))
        values = kernel_values(similarity, self.kernels)  # (B, Q, D, K)
        values = values * pair_mask(query.mask, doc.mask)[..., None]
        scores, windows = [], {}
        for number, size in enumerate(self.config.windows):
            padded = functional.pad(values, (0, 0, 0, self._padding(values.shape[2], size)))
            if self.config.authors_padding:
                values = padded
            counts = torch.unflatten(padded, 2, (-1, size)).sum(3)  # (B, Q, W, K)
            sums = log_counts(counts).sum(1)  # over query words
            by_window = (sums * self.kernel_weights[number]).sum(-1)  # (B, W)
            ranked, strength = self._sorted(by_window, number)  # both (B, W')
            scores.append((ranked * self.rank_weights[number]).sum(-1))  # (B,)
            windows[f"windows_{size}"] = strength
        sizes = torch.stack(scores, 1)  # (B, S)
        part = sizes * self.size_weights
        return Output(part.sum(1), {"sizes": part, "similarity": similarity, **windows})

    def _padding(self, length: int, size: int) -> int:
        """Pad to a multiple of the window."""
        missing = -length % size
        return size if self.config.authors_padding and missing == 0 else missing

    def _sorted(self, scores: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Strengths of the windows, strongest first, as many as there are weights."""
        strength = window_strength(scores, self.scales[number])  # (B, W)
        most = len(self.rank_weights[number])

        def fit(values: Tensor) -> Tensor:
            return functional.pad(values[:, :most], (0, max(0, most - values.shape[1])))

        if self.config.authors_padding:
            strength = fit(strength)
        return fit(strength.sort(dim=1, descending=True).values), strength


def log_counts(counts: Tensor) -> Tensor:
    """Logarithms (…, K); zero for query words without any count."""
    return counts.clamp(min=FLOOR).log() * (counts.sum(-1, keepdim=True) != 0)


def window_strength(scores: Tensor, scale: Tensor | float) -> Tensor:
    """Windows without any match have none."""
    return torch.exp(scores * scale) * (scores != 0)
