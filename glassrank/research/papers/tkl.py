"""TKL: TK for long documents, which reads them in chunks and scores them by their best regions.

S. Hofstätter, H. Zamani, B. Mitra, N. Craswell, A. Hanbury, "Local Self-Attention over Long Text
for Efficient Document Retrieval", SIGIR 2020. A word attends to its chunk and a few words on either
side, so that time grows with a document's length and not with its square. Kernels are pooled in a
window that slides over the document. How fast a count saturates depends on the query word and on
the window. The score is a weighted sum over the best windows that do not overlap and those beside
them.

Chunks are read by TK's own layers: chunks, saturation and regions are what differs from TK.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.configs import FLOOR, Kernels
from glassrank.backends.match import KernelBank, kernel_values, match_matrix, unit
from glassrank.models.late_interaction import ContextualConfig
from glassrank.models.model import ModelInfo, Output, TokenEmbeddings
from glassrank.models.torch_models import EmbeddingTable, WordRanker
from glassrank.research.papers.contextual import ContextualLayers
from glassrank.research.papers.knrm import small_weights

_NEARLY_LOGARITHM = 100.0
"""a (x^(1/a) - 1) is nearly ln x for a large a: saturation begins there."""


@dataclass(frozen=True)
class TKLConfig:
    """The defaults are those of the authors' code; the layers are TK's."""

    size: int = 300
    contextual: ContextualConfig = field(default_factory=ContextualConfig)
    kernels: Kernels = field(default_factory=Kernels.eleven)
    chunk: int = 40
    overlap: int = 5
    """Words before and after a chunk that its words attend to, too."""
    window: int = 30
    stride: int = 2
    """Words from one window to the next."""
    regions: int = 3
    neighbours: int = 2
    """Windows on either side of a region's best that count, too."""
    authors_norm: bool = False
    """Whether what saturation depends on passes a layer norm first. Of two values it leaves only
    which is the larger."""

    def __post_init__(self) -> None:
        if not 0 < self.stride <= self.window or self.chunk < 1:
            raise ValueError("chunk must be 1 or more, stride 1 or more and at most window")


class TKL(WordRanker):
    """Chunks of contextual words, saturation by query word and window, the best regions."""

    info = ModelInfo(
        "tkl",
        TKLConfig,
        is_additive=True,
        summands=("regions",),  # (B, R, N), by region and window: its explainer divides them
        stores_embeddings=True,
    )
    config: TKLConfig

    def __init__(self, config: TKLConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.contextual = ContextualLayers(config.size, config.contextual)
        self.kernels = KernelBank(config.kernels)
        self.kernel_weights = small_weights(len(config.kernels))  # (K,)
        self.word_feature = nn.Linear(config.size, 1, bias=False)
        self.norm = nn.LayerNorm(2) if config.authors_norm else None
        self.saturation = nn.Linear(2, 3)  # to a factor, a root and an offset
        nn.init.uniform_(self.saturation.weight, -0.014, 0.014)
        nn.init.constant_(self.saturation.bias, _NEARLY_LOGARITHM)
        beside = 2 * config.neighbours + 1
        self.region_weights = nn.Parameter(torch.ones(config.regions, beside))  # (R, N)

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """Unit vectors; what a word's saturation depends on stands in the place of its idf."""
        vectors = self.contextual(words.vectors, words.mask)  # (B, Q, E)
        feature = self.word_feature(vectors).squeeze(-1)  # (B, Q)
        return TokenEmbeddings(unit(vectors), words.mask, feature * words.mask)

    def doc_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        """Unit vectors, each of its own chunk."""
        chunk, overlap = self.config.chunk, self.config.overlap
        batch, length, size = words.vectors.shape
        width, sides = chunk + 2 * overlap, (overlap, -length % chunk + overlap)
        vectors = functional.pad(words.vectors, (0, 0, *sides)).unfold(1, width, chunk)
        mask = functional.pad(words.mask, sides).unfold(1, width, chunk)  # (B, C, width)
        chunks = vectors.transpose(2, 3).flatten(0, 1)  # (B * C, width, E)
        read = self.contextual(chunks, mask.flatten(0, 1))[:, overlap : overlap + chunk]
        return words.with_vectors(unit(read.reshape(batch, -1, size)[:, :length]))

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        """Parts: what each window of each region adds (B, R, N), which window it is, -1 for none,
        and what query words add to each window's score (B, Q, W)."""
        similarity = match_matrix(query.vectors, doc.vectors, query.mask, doc.mask)  # (B, Q, D)
        values = kernel_values(similarity, self.kernels) * doc.mask[:, None, :, None]
        counts = self._sum_windows(values)  # (B, Q, W, K)
        lengths = self._sum_windows(doc.mask[:, None, :, None])[:, 0, :, 0]  # (B, W)
        signal = self.saturate(counts, query.idf, lengths)  # (B, Q, W, K)
        by_term = (signal @ self.kernel_weights) * query.mask[..., None]  # (B, Q, W)
        by_window = by_term.sum(1)  # (B, W)
        places = self._find_regions(by_window, lengths > 0)  # (B, R, N)
        chosen = by_window.gather(1, places.clamp(min=0).flatten(1)).view_as(places)
        part = self.region_weights * chosen * (places >= 0)
        parts = {"regions": part, "places": places, "by_term": by_term, "similarity": similarity}
        return Output(part.sum((1, 2)), parts)

    def _sum_windows(self, values: Tensor) -> Tensor:
        """(B, Q, D, K) to (B, Q, W, K). Every window begins within the text; the last ones reach
        over its end, whether padding stands there or not."""
        window, stride = self.config.window, self.config.stride
        missing = -values.shape[2] % stride + window - stride
        padded = functional.pad(values, (0, 0, 0, missing))
        return functional.avg_pool2d(padded, (window, 1), (stride, 1), divisor_override=1)

    def saturate(self, counts: Tensor, feature: Tensor, lengths: Tensor) -> Tensor:
        """Counts (B, Q, W, K), by the feature (B, Q) of the query word and the number (B, W) of
        words in the window."""
        length = lengths[:, None].expand(counts.shape[:3])  # (B, Q, W)
        if self.norm is None:
            length = length / self.config.window
        inputs = torch.stack([feature[..., None].expand_as(length), length], -1)  # (B, Q, W, 2)
        if self.norm is not None:
            inputs = self.norm(inputs)
        factor, root, offset = self.saturation(inputs)[..., None, :].unbind(-1)  # (B, Q, W, 1)
        saturated: Tensor = factor * counts.clamp(min=FLOOR) ** (1 / root) - offset
        return saturated

    @torch.no_grad()
    def _find_regions(self, scores: Tensor, exists: Tensor) -> Tensor:
        """(B, W) to (B, R, N): the best window of each region between those beside it, -1 where
        there is none."""
        windows = torch.arange(scores.shape[1], device=scores.device)  # (W,)
        near = self.config.neighbours
        beside = torch.arange(-near, near + 1, device=scores.device)  # (N,)
        apart = self.config.window // self.config.stride
        free, regions = exists, []
        for _ in range(self.config.regions):
            best = scores.masked_fill(~free, float("-inf")).argmax(1, keepdim=True)  # (B, 1)
            places = best + beside  # (B, N)
            inside = exists.gather(1, places.clamp(0, len(windows) - 1))
            inside &= (places >= 0) & (places < len(windows)) & free.any(1, keepdim=True)
            regions.append(places.masked_fill(~inside, -1))
            free = free & ((windows - best).abs() >= apart)
        return torch.stack(regions, 1)
