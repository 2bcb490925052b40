"""MatchPyramid: reads the match matrix as a picture.

L. Pang, Y. Lan, J. Guo, J. Xu, S. Wan, X. Cheng, "Text Matching as Image Recognition", AAAI 2016.
Convolutions find patterns in the matrix of word similarities: a phrase is a diagonal line, a
reordered phrase a scattered one. Dynamic pooling brings matrices of all sizes to one: its bins are
cut from each pair's own query and document length. Sizes of layers are those of the TK paper.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.match import pair_mask, unit
from glassrank.models.model import ModelInfo, Output, TokenEmbeddings
from glassrank.models.torch_models import EmbeddingTable, WordRanker

_LARGEST_POOL = 100_000


@dataclass(frozen=True)
class MatchPyramidConfig:
    """Convolutions, pools and dense layers, from the matrix to the score."""

    size: int = 300
    channels: tuple[int, ...] = (16, 16, 16, 16, 16)
    kernel: int = 3
    pools: tuple[tuple[int, int], ...] = ((36, 90), (18, 60), (9, 30), (6, 20), (3, 10))
    """Rows and columns after each convolution. Short texts are stretched to the first of them."""
    hidden: tuple[int, int] = (100, 10)
    masked: bool = True
    """False: padding is part of the picture, as in the TK authors' code, so that the score of a
    pair changes with the longest text of its batch."""

    def __post_init__(self) -> None:
        if len(self.channels) != len(self.pools) or not self.pools:
            raise ValueError(
                f"each convolution needs a pool: {len(self.channels)} channels, {self.pools}"
            )
        if any(not 1 <= math.prod(pool) <= _LARGEST_POOL for pool in self.pools):
            raise ValueError(f"a pool has 1 to {_LARGEST_POOL:,} values, found {self.pools}")


class MatchPyramid(WordRanker):
    """Convolutions over the match matrix."""

    info = ModelInfo("matchpyramid", MatchPyramidConfig)

    def __init__(self, config: MatchPyramidConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        inputs = (1, *config.channels)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, config.kernel)
            for before, after in zip(inputs, config.channels, strict=False)
        )
        rows, columns = config.pools[-1]
        first, second = config.hidden
        self.dense = nn.Sequential(
            nn.Linear(config.channels[-1] * rows * columns, first),
            nn.ReLU(),
            nn.Linear(first, second),
            nn.ReLU(),
            nn.Linear(second, 1, bias=False),
        )

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        vectors = words.vectors * words.mask[..., None] if self.config.masked else words.vectors
        return words.with_vectors(unit(vectors))

    doc_words = query_words

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        similarity = query.vectors @ doc.vectors.transpose(1, 2)  # (B, Q, D)
        if self.config.masked:  # once more: a store may not keep padding as zeros
            similarity = similarity * pair_mask(query.mask, doc.mask)
        maps = self._patterns(0, similarity[:, None])  # (B, C, Q, D)
        # The first layer still stands word by word: where a pattern begins, for explanations.
        patterns = maps.amax(1) * pair_mask(query.mask, doc.mask)  # (B, Q, D)
        if self.config.masked:
            maps = dynamic_max_pool(maps, query.mask, doc.mask, self.config.pools[0])
        else:
            maps = functional.adaptive_max_pool2d(maps, self.config.pools[0])
        for number, pool in enumerate(self.config.pools[1:], 1):  # now all pairs are of one size
            maps = functional.adaptive_max_pool2d(self._patterns(number, maps), pool)
        score = self.dense(maps.flatten(1)).squeeze(-1)  # (B,)
        return Output(score, {"similarity": similarity, "patterns": patterns, "pyramid": maps})

    def _patterns(self, number: int, maps: Tensor) -> Tensor:
        """One convolution; zeros to the right and below keep the size (at least 1 x 1)."""
        kernel = self.config.kernel
        below, right = (max(kernel - 1, kernel - length) for length in maps.shape[2:])
        convolved: Tensor = self.convolutions[number](functional.pad(maps, (0, right, 0, below)))
        return torch.relu(convolved)  # (B, C, rows, columns)


def dynamic_max_pool(
    maps: Tensor, query_mask: Tensor, doc_mask: Tensor, pool: tuple[int, int]
) -> Tensor:
    """Largest values of a grid that covers each pair's real words: (B, C, Q, D) to (B, C, *pool).

    The same as cutting the padding off each pair and calling `adaptive_max_pool2d`, but for the
    whole batch at once. A maximum over a rectangle is one over columns, then one over rows.
    """
    columns = _bins(doc_mask, pool[1])  # (B, P, W)
    rows = _bins(query_mask, pool[0])  # (B, P, W)
    wide = _pool_last(maps, columns)  # (B, C, Q, pool[1])
    return _pool_last(wide.transpose(2, 3), rows).transpose(2, 3)


def _pool_last(maps: Tensor, bins: Tensor) -> Tensor:
    """Maxima over the places that `bins` (B, P, W) lists: (B, C, R, L) to (B, C, R, P)."""
    places = bins.flatten(1)[:, None, None].expand(-1, maps.shape[1], maps.shape[2], -1)
    return torch.unflatten(maps.gather(3, places), 3, bins.shape[1:]).amax(-1)


def _bins(mask: Tensor, count: int) -> Tensor:
    """Which places fall into each of `count` bins: (B, L) to (B, P, W). A bin that is narrower than
    the widest possible one repeats its last place, which leaves its maximum as it is."""
    lengths = mask.sum(1).long()[:, None]  # (B, 1)
    number = torch.arange(count, device=mask.device)  # (P,)
    start = number * lengths // count  # (B, P)
    last = ((number + 1) * lengths + count - 1) // count - 1  # (B, P)
    widest = -(-mask.shape[1] // count) + 1  # of any length, so that none is read back to the CPU
    places = start[..., None] + torch.arange(widest, device=mask.device)  # (B, P, W)
    return places.minimum(last[..., None]).clamp(min=0)
