"""The contract for models of PyTorch's: encode a query, encode a document, let them interact.

    q = model.encode_query(batch)
    d = model.encode_doc(batch)      # what a store keeps
    out = model.interact(q, d)       # out.score, out.parts

Live ranking, stored representations and explanations all go through these three calls. What they
ask of a model beyond that are the properties of `Ranker`, never its class. A new family is a
subclass in a file of its own: of `WordRanker` over word vectors that models share, of `PieceRanker`
over a transformer's pieces of words, with vectors of its own.
"""

import copy
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glassrank.errors import InputError
from glassrank.models.ranker import AnyRanker, Output, PieceText, TokenBatch, Words

if TYPE_CHECKING:
    from glassrank.models.pretrained import Pretrained

__all__ = [
    "Output",
    "PieceRanker",
    "PieceText",
    "Ranker",
    "TokenBatch",
    "WordRanker",
    "WordTable",
    "Words",
]


class WordTable(nn.Module):
    """A vector and an inverse document frequency for each word id; id 0 is padding."""

    idf: Tensor
    has_buckets: bool = True
    """Whether vectors behind those of the vocabulary are for words that are not in it."""

    def __init__(self, vectors: Tensor, idf: Tensor | None = None, *, trained: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(vectors), vectors.shape[1], padding_idx=0, sparse=trained)
        self.embedding.weight = nn.Parameter(vectors, requires_grad=trained)
        self.register_buffer("idf", torch.ones(len(vectors)) if idf is None else idf)

    @property
    def vector_count(self) -> int:
        """How many vectors there are."""
        return len(self.embedding.weight)

    def forward(self, batch: TokenBatch) -> Words:
        """Each word's vector and idf."""
        return Words(self.embedding(batch.ids), batch.mask, self.idf[batch.ids] * batch.mask)


class Ranker(nn.Module, AnyRanker):
    """What is common to all models of PyTorch's. A model is made of its settings, a `config_type`,
    and of the table of its words where it has one."""

    def __init__(self, config: Any, words: WordTable | None = None) -> None:
        super().__init__()
        self.config = config
        self.words = words
        self.first_stage_weight: nn.Parameter | None = None

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(self.parameters()).device

    def weight_chunks(self) -> Iterator[tuple[str, Iterator[NDArray[np.generic]]]]:
        """By name, each in one."""
        for name, tensor in self.state_dict().items():
            yield name, iter([tensor.detach().cpu().contiguous().numpy()])

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

    def for_many(self, query: Words, count: int) -> Words:
        """One encoded query, as `interact` takes it together with `count` documents."""
        return query.rows(torch.zeros(count, dtype=torch.long, device=query.mask.device))

    def rounded(self, dtype: torch.dtype) -> Self:
        """The same weights in another type, where the model has layers that may be rounded."""
        return self

    def forward(self, query: TokenBatch, doc: TokenBatch) -> Tensor:
        score: Tensor = self.interact(self.encode_query(query), self.encode_doc(doc)).score
        return score


class WordRanker(Ranker):
    """A model over word vectors, which come from a table that all such models share. What differs
    between models is below the line of `query_words`, `doc_words` and `interact`."""

    def encode_query(self, batch: TokenBatch) -> Words:
        return self.query_words(self.look_up(batch))

    def encode_doc(self, batch: TokenBatch) -> Words:
        return self.doc_words(self.look_up(batch))

    def look_up(self, batch: TokenBatch) -> Words:
        """Each word's vector and idf, from the table."""
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


class PieceRanker(Ranker):
    """A transformer over pieces; `config.text` is a PieceText.

    One query may meet many documents: `interact` takes as many encoded queries as documents, or one
    for all of them, which is then neither repeated nor computed again."""

    reads_pieces = True
    interacts_rounded = True
    large = True
    encoders: tuple[str, ...] = ("encoder",)

    @classmethod
    @abstractmethod
    def start(cls, bert: "Pretrained", **settings: Any) -> Self:
        """With the weights of a pretrained encoder, as far as they have a place."""

    def rounded(self, dtype: torch.dtype) -> Self:
        """The same weights in another type: it encodes, and where it may, interacts in it."""
        fast = copy.deepcopy(self).to(dtype)
        # It multiplies large numbers, and only once for each document.
        fast.first_stage_weight = self.first_stage_weight
        return fast.eval()

    @abstractmethod
    def interact(self, query: Words, doc: Words, explain: bool = False) -> Output:
        """Scores (B,) of B documents and as many queries or one. With `explain`, attention stands
        among the parts, which costs time and memory."""

    def explain(self, query: TokenBatch, doc: TokenBatch) -> Output:
        """The score with everything that the model can show for it."""
        return self.interact(self.encode_query(query), self.encode_doc(doc), explain=True)

    def for_many(self, query: Words, count: int) -> Words:
        """As it is: one query serves any number of documents."""
        return query


def start_with(bert: "Pretrained", family: type[Ranker], **settings: Any) -> Ranker:
    """A model of this family with the weights of a pretrained encoder."""
    if not issubclass(family, PieceRanker):
        raise InputError(f"a {family.name} cannot begin with a BERT; leave start.bert out")
    return family.start(bert, **settings)
