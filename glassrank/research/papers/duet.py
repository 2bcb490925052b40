"""DUET v2: exact matches and learned meaning, side by side.

B. Mitra, N. Craswell, "An Updated Duet Model for Passage Re-ranking", 2019. The local half sees
only where query words occur in the document, weighted by their rarity; the distributed half
compares learned representations of the query and of windows of the document. Both are summed.

The layers' sizes depend on the lengths of the texts, so that queries and documents are cut or
padded to fixed ones. This model sees vectors, not words: an exact match is a cosine of 1 but for
rounding, and all words outside the vocabulary, which share one vector, count as the same word.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.match import match_matrix, unit
from glassrank.models.model import ModelInfo, Output, TokenEmbeddings
from glassrank.models.torch_models import EmbeddingTable, WordRanker
from glassrank.research.papers.pacrr import cut, lengthen

SAME_WORD = 1 - 1e-4
"""Cosines above this are of one word with itself, also when one side was stored as bf16 or int8."""
SCALE = 0.1
"""Of the final score; a constant in the original code."""


@dataclass(frozen=True)
class DuetConfig:
    """The defaults are those of the original code."""

    size: int = 300
    hidden: int = 300
    query_length: int = 20
    doc_length: int = 200
    window: int = 3
    """Words in a convolution of the distributed half."""
    doc_pool: int = 100
    """How many places of the document one pooling window covers; windows move one by one."""
    query_pool: int | None = None
    """How many places of the query are pooled, from the first; all by default."""
    local: Literal["exact", "cosine"] = "exact"
    dropout: float = 0.5
    mask_hidden: bool = True
    """False: layers see padding as words whose vectors are zero, and their biases answer to it, as
    in the original code. True: what stands for padding is silenced behind each layer."""
    last_relu: bool = True
    """Whether scores pass a last ReLU, as in the original code. Once it gives zero for every pair,
    nothing is learned any more; without it, the last layers begin as any others do."""

    def __post_init__(self) -> None:
        if self.doc_windows < 1 or self.query_length < self.window:
            raise ValueError(
                f"texts of {self.query_length} and {self.doc_length} words are too short for "
                f"convolutions of {self.window} words and pools of {self.doc_pool} places"
            )

    @property
    def doc_windows(self) -> int:
        """How many pooling windows a document has."""
        return self.doc_length - self.window + 1 - self.doc_pool + 1


class Duet(WordRanker):
    """A local and a distributed half, added up before the last layers."""

    info = ModelInfo("duet", DuetConfig)

    def __init__(self, config: DuetConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        size, hidden = config.size, config.hidden
        self.local = nn.Conv1d(config.doc_length, hidden, 1)
        self.local_dense = _dense(hidden * config.query_length, hidden, config.dropout)
        self.query = nn.Conv1d(size, hidden, config.window)
        self.query_dense = nn.Linear(hidden, hidden)
        self.doc = nn.Conv1d(size, hidden, config.window)
        self.doc_windows = nn.Conv1d(hidden, hidden, 1)
        self.distributed_dense = _dense(hidden * config.doc_windows, hidden, config.dropout)
        self.combine = nn.Sequential(
            *_layers(hidden, hidden, config.dropout),
            *_layers(hidden, hidden, config.dropout),
            nn.Linear(hidden, 1),
            *([nn.ReLU()] if config.last_relu else []),
        )
        for layer in self.combine if config.last_relu else ():
            if isinstance(layer, nn.Linear):  # else that ReLU may begin, and stay, at zero
                nn.init.uniform_(layer.weight, 0, 0.01)
                nn.init.zeros_(layer.bias)

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        return _cut(words, self.config.query_length)

    def doc_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        return _cut(words, self.config.doc_length)

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        q = lengthen(self.query_words(query), self.config.query_length)  # vectors (B, Q', E)
        d = lengthen(self.doc_words(doc), self.config.doc_length)  # vectors (B, D', E)
        # Unit vectors here and not in `encode_doc`: a stored vector is a little off its length.
        similarity = match_matrix(unit(q.vectors), unit(d.vectors), q.mask, d.mask)  # (B, Q', D')
        if self.config.local == "exact":
            similarity = (similarity >= SAME_WORD).to(similarity.dtype)
        weighted = similarity * q.idf[..., None]  # (B, Q', D')
        meetings = self._query_vector(q)[..., None] * self._doc_windows(d)  # (B, H, W)
        local = self._local(weighted, q.mask)  # (B, H)
        distributed = self.distributed_dense(meetings.flatten(1))  # (B, H)
        score = SCALE * self.combine(local + distributed).squeeze(-1)  # (B,)
        shape = query.mask.shape[1], doc.mask.shape[1]  # as the texts came; a cut word matches 0
        return Output(
            score,
            parts={
                "similarity": _resize(similarity, *shape),  # (B, Q, D)
                "weighted": _resize(weighted, *shape),  # (B, Q, D)
                "windows": meetings.sum(1),  # (B, W)
                "local": local,
                "distributed": distributed,
            },
        )

    def _local(self, weighted: Tensor, query_mask: Tensor) -> Tensor:
        """Where the query words stand in the document: (B, Q', D') to (B, H)."""
        hidden = torch.relu(self.local(weighted.transpose(1, 2)))  # (B, H, Q')
        vector: Tensor = self.local_dense(self._silence(hidden, query_mask).flatten(1))
        return vector

    def _query_vector(self, query: TokenEmbeddings) -> Tensor:
        hidden = torch.relu(self.query(query.vectors.transpose(1, 2)))  # (B, H, Q' - 2)
        pooled = self._silence(hidden, query.mask)[..., : self.config.query_pool].amax(-1)  # (B, H)
        return torch.relu(self.query_dense(pooled))

    def _doc_windows(self, doc: TokenEmbeddings) -> Tensor:
        hidden = torch.relu(self.doc(doc.vectors.transpose(1, 2)))  # (B, H, D' - 2)
        pooled = functional.max_pool1d(
            self._silence(hidden, doc.mask), self.config.doc_pool, stride=1
        )  # (B, H, W)
        return self._silence(torch.relu(self.doc_windows(pooled)), doc.mask)

    def _silence(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """(B, H, L) without what begins on padding. Behind a ReLU, zero never wins a maximum."""
        return hidden * mask[:, None, : hidden.shape[2]] if self.config.mask_hidden else hidden


def _dense(inputs: int, hidden: int, dropout: float) -> nn.Sequential:
    layers = _layers(inputs, hidden, dropout), _layers(hidden, hidden, dropout)
    return nn.Sequential(nn.Dropout(dropout), *layers[0], *layers[1])


def _layers(inputs: int, outputs: int, dropout: float) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(dropout)


def _cut(words: TokenEmbeddings, length: int) -> TokenEmbeddings:
    """At most `length` words, padding zero."""
    words = cut(words, length)
    return words.with_vectors(words.vectors * words.mask[..., None])


def _resize(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """(B, Q', D') to (B, rows, columns), filled with zeros or cut."""
    return functional.pad(matrix, (0, columns - matrix.shape[2], 0, rows - matrix.shape[1]))
