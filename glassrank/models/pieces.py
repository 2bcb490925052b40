"""What the transformers have in common: texts are pieces of words, with vectors of the model's own.

One query may meet many documents: `interact` takes as many encoded queries as documents, or one for
all of them, which is then neither repeated nor computed again.
"""

import copy
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import torch

from glassrank.models.contract import Output, Ranker, TokenBatch, Words
from glassrank.models.pretrained import Pretrained


@dataclass(frozen=True)
class PieceText:
    """How texts become pieces."""

    lowercase: bool = True
    query_words: int | None = None
    """Words of a query that are kept before it is cut into pieces: 30 in the TK paper, all here."""
    doc_words: int | None = None
    """The same of a document: 200 in the TK paper."""


class PieceRanker(Ranker):
    """A transformer over pieces; `config.text` is a PieceText."""

    config_type: type[Any]
    interacts_rounded = True

    @classmethod
    @abstractmethod
    def start(cls, bert: Pretrained, **settings: Any) -> Self:
        """With the weights of a pretrained encoder, as far as they have a place."""

    def rounded(self, dtype: torch.dtype) -> Self:
        """The same weights in another type: it encodes, and where it may, interacts in it."""
        fast = copy.deepcopy(self).to(dtype)
        # It multiplies large numbers, and only once for each document.
        fast.first_stage_weight = self.first_stage_weight
        return fast.eval()

    @abstractmethod
    def encode_query(self, batch: TokenBatch) -> Words: ...

    @abstractmethod
    def encode_doc(self, batch: TokenBatch) -> Words: ...

    @abstractmethod
    def interact(self, query: Words, doc: Words, explain: bool = False) -> Output:
        """Scores (B,) of B documents and as many queries or one. With `explain`, attention stands
        among the parts, which costs time and memory."""

    def explain(self, query: TokenBatch, doc: TokenBatch) -> Output:
        """The score with everything that the model can show for it."""
        return self.interact(self.encode_query(query), self.encode_doc(doc), explain=True)

    def query_words(self, words: Words) -> Words:
        raise TypeError(f"a {self.name} has its own vectors for pieces; use encode_query")

    def doc_words(self, words: Words) -> Words:
        raise TypeError(f"a {self.name} has its own vectors for pieces; use encode_doc")

    def for_many(self, query: Words, count: int) -> Words:
        """As it is: one query serves any number of documents."""
        return query
