"""What the transformers have in common: texts are pieces of words, with vectors of the model's own.

One query may meet many documents: `interact` takes as many encoded queries as documents, or one for
all of them, which is then neither repeated nor computed again.
"""

import copy
from abc import abstractmethod
from typing import Any, Self

import torch

from glassrank.errors import InputError
from glassrank.models.contract import Output, Ranker, TokenBatch, Words
from glassrank.models.pretrained import Pretrained


class PieceRanker(Ranker):
    """A transformer over pieces; `config.text` is a PieceText."""

    reads_pieces = True
    interacts_rounded = True
    large = True
    encoders: tuple[str, ...] = ("encoder",)

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
    def interact(self, query: Words, doc: Words, explain: bool = False) -> Output:
        """Scores (B,) of B documents and as many queries or one. With `explain`, attention stands
        among the parts, which costs time and memory."""

    def explain(self, query: TokenBatch, doc: TokenBatch) -> Output:
        """The score with everything that the model can show for it."""
        return self.interact(self.encode_query(query), self.encode_doc(doc), explain=True)

    def for_many(self, query: Words, count: int) -> Words:
        """As it is: one query serves any number of documents."""
        return query


def start_with(bert: Pretrained, family: type[Ranker], **settings: Any) -> Ranker:
    """A model of this family with the weights of a pretrained encoder."""
    if not issubclass(family, PieceRanker):
        raise InputError(f"a {family.name} cannot begin with a BERT; leave start.bert out")
    return family.start(bert, **settings)
