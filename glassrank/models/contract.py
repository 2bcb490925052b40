"""The contract of every model: encode a query, encode a document, let them interact.

    q = model.encode_query(batch)
    d = model.encode_doc(batch)      # what a store keeps
    out = model.interact(q, d)       # out.score, out.parts

Live ranking, stored representations and explanations all go through these three calls. What they
ask of a model beyond that are the properties of `Ranker`, never its class. A new family is a
subclass in a file of its own: of `WordRanker` over word vectors that models share, of `PieceRanker`
(`pieces.py`) over a transformer's pieces of words.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from glassrank.nn.kernels import Readout


class TokenBatch(NamedTuple):
    """Word ids, padded at the end, and a mask that is 1 where a word stands."""

    ids: Tensor  # (B, L) integers
    mask: Tensor  # (B, L) floats


class Words(NamedTuple):
    """Word vectors of queries or documents, as looked up or as a model encoded them."""

    vectors: Tensor  # (B, L, E); a model may put further axes in between
    mask: Tensor  # (B, L) floats
    idf: Tensor  # (B, L); ones where a model has no use for it; an ensemble has one per member

    def rows(self, which: Tensor | slice) -> "Words":
        """Those of some texts of the batch."""
        return Words(self.vectors[which], self.mask[which], self.idf[which])


@dataclass(frozen=True)
class Output:
    """`parts` are named tensors. Where the model says that they are exact, those in
    `model.summands` add up to the score."""

    score: Tensor  # (B,)
    parts: dict[str, Tensor]


@dataclass(frozen=True)
class PieceText:
    """How texts become pieces of words."""

    lowercase: bool = True
    query_words: int | None = None
    """Words of a query that are kept before it is cut into pieces: 30 in the TK paper, all here."""
    doc_words: int | None = None
    """The same of a document: 200 in the TK paper."""


class WordTable(nn.Module):
    """A vector and an inverse document frequency for each word id; id 0 is padding."""

    idf: Tensor

    def __init__(self, vectors: Tensor, idf: Tensor | None = None, *, trained: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(vectors), vectors.shape[1], padding_idx=0, sparse=trained)
        self.embedding.weight = nn.Parameter(vectors, requires_grad=trained)
        self.register_buffer("idf", torch.ones(len(vectors)) if idf is None else idf)

    def forward(self, batch: TokenBatch) -> Words:
        """Each word's vector and idf."""
        return Words(self.embedding(batch.ids), batch.mask, self.idf[batch.ids] * batch.mask)


class Ranker(nn.Module, ABC):
    """What is common to all models. A model is made of its settings, a `config_type`, and of the
    table of its words where it has one."""

    name: str
    """As model folders and training configs have it."""
    config_type: ClassVar[type[Any]]
    """The dataclass that configures it."""
    reads_pieces: bool = False
    """Whether texts become pieces of words, as `config.text` says, or else words."""
    exact: bool = False
    """Whether the summands add up to the score."""
    summands: tuple[str, ...] = ()
    """The parts that add up, one for each path to the score: (B, Q, ...) by query word, or (B,)
    where it is not by query word. Explanations show them by these names."""
    weighs_terms: bool = False
    """Whether an encoded query's `idf` is the weight of each word in the score."""
    stores_words: bool = False
    """Whether a document's encoded words are worth storing: they depend on the words around them,
    and `interact` has no use for their idf. Otherwise word ids are stored, which are far smaller,
    and `encode_doc`, which is then little more than a look-up, is repeated for each query."""

    one_row: bool = False
    """Whether an encoded text is a single row, whatever its length; otherwise each word, or piece,
    that the model reads has its own."""
    one_text: bool = False
    """Whether query and document are read as one text, so that nothing of either can be computed
    beforehand."""
    interacts_rounded: bool = False
    """Whether `interact` may be computed in bfloat16 where that is faster: soft counts may not."""
    large: bool = False
    """Whether one batch keeps all cores busy; of other models, each core takes a batch."""
    encoders: tuple[str, ...] = ("contextual",)
    """The modules that read a text by itself: they learn at a rate of their own."""
    modular: bool = False
    """Whether the encoders and what lets texts interact can be trained apart."""

    def __init__(self, config: Any, words: WordTable | None = None) -> None:
        super().__init__()
        self.config = config
        self.words = words
        self.first_stage_weight: nn.Parameter | None = None

    @property
    def piece_text(self) -> PieceText | None:
        """How texts become pieces; None for a model on words."""
        text: PieceText | None = self.config.text if self.reads_pieces else None
        return text

    def rankers(self) -> "Sequence[Ranker]":
        """The models that this one is made of: itself, or an ensemble's members."""
        return [self]

    def mix_first_stage(self, weight: float = 0.1) -> None:
        """Lets the first stage's score count, by a learned weight; off unless asked for."""
        self.first_stage_weight = nn.Parameter(torch.tensor(weight))

    def look_at(self, docs: Iterable[TokenBatch]) -> None:
        """Some documents, before the first step of a fresh model: what can be learned from texts
        alone. Most models learn nothing."""

    def rank(self, query: Words, doc: Words, first_stage: Tensor | None = None) -> Output:
        """`interact`, and the first stage's share as one more part where it is mixed in."""
        out = self.interact(query, doc)
        if self.first_stage_weight is None or first_stage is None:
            return out
        part = self.first_stage_weight * first_stage  # (B,)
        return Output(out.score + part, {**out.parts, "first_stage": part})

    @abstractmethod
    def encode_query(self, batch: TokenBatch) -> Words:
        """The query as `interact` needs it."""

    @abstractmethod
    def encode_doc(self, batch: TokenBatch) -> Words:
        """The document as `interact` needs it. Does not see the query: it can be computed
        beforehand and stored."""

    @abstractmethod
    def interact(self, query: Words, doc: Words) -> Output:
        """Scores (B,) of as many queries and documents."""

    def for_many(self, query: Words, count: int) -> Words:
        """One encoded query, as `interact` takes it together with `count` documents."""
        return query.rows(torch.zeros(count, dtype=torch.long, device=query.mask.device))

    def readouts(self) -> list[Readout]:
        """How `interact` turns soft counts into a score, where that is all it does: one for each
        match matrix, counted by the model's `kernels`. The fast paths then score stored words
        without calling it; a model without any is scored by `interact`. Words must be unit
        vectors, and a query word's weight stands in the place of its idf where `weighs_terms` says
        so."""
        return []

    def rounded(self, dtype: torch.dtype) -> Self:
        """The same weights in another type, where the model has layers that may be rounded."""
        return self

    def forward(self, query: TokenBatch, doc: TokenBatch) -> Tensor:
        return self.interact(self.encode_query(query), self.encode_doc(doc)).score


class WordRanker(Ranker):
    """A model over word vectors, which come from a table that all such models share. What differs
    between models is below the line of `query_words`, `doc_words` and `interact`."""

    def encode_query(self, batch: TokenBatch) -> Words:
        return self.query_words(self._look_up(batch))

    def encode_doc(self, batch: TokenBatch) -> Words:
        return self.doc_words(self._look_up(batch))

    def _look_up(self, batch: TokenBatch) -> Words:
        if self.words is None:
            raise ValueError(f"this {self.name} has no word vectors; give it a WordTable")
        looked_up: Words = self.words(batch)
        return looked_up

    @abstractmethod
    def query_words(self, words: Words) -> Words:
        """The query as `interact` needs it."""

    @abstractmethod
    def doc_words(self, words: Words) -> Words:
        """The document as `interact` needs it."""
