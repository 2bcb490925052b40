"""A text as the model reads it: words or pieces, ids, and where they stand for a person."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch

from glassrank.explain.piece_reading import FIRST, LAST, read_pieces
from glassrank.explain.spans import word_spans
from glassrank.explain.structure import Side, Text, Word
from glassrank.models import PieceText, TokenBatch
from glassrank.rank import Reranker
from glassrank.text import split_words


@dataclass(frozen=True)
class Reading:
    text: Text
    batch: TokenBatch  # of one text; one place of padding if it has no words
    unit: Literal["words", "pieces"] = "words"
    cut_words: int = 0
    """Of what was cut, the words that never became pieces."""

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.text.words)

    def cut_to(self, count: int) -> "Reading":
        """For models that read less than they are given."""
        cut = self.text.cut + _count(self.text.words[count:])
        return replace(self, text=replace(self.text, words=self.text.words[:count], cut=cut))

    def notes(self, side: Side) -> Iterator[str]:
        """What was not read, and what was read without being known."""
        read, cut = _count(self.text.words), self.text.cut
        if cut and self.unit == "words":
            yield f"The model read the first {read} words of the {side}; {cut} were cut."
        elif cut:
            kinds = {"pieces": cut - self.cut_words, "words": self.cut_words}
            missing = " and ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
            yield f"The model read the first {read} pieces of the {side}; {missing} were cut."
        unknown = sum(not word.known for word in self.text.words)
        if unknown:
            which = f"Of the {side}'s {self.unit} {unknown}"
            yield f"{which} are not in the vocabulary and share vectors."


def read(reranker: Reranker, text: str, side: Side) -> Reading:
    """As much of a text as the model reads of it."""
    # Half a surrogate pair can be neither read nor printed; the tokenizer sees a question mark.
    text = text.encode("utf-8", "replace").decode()
    usage, pieces = reranker.usage, reranker.model.piece_text
    longest = usage.query_length if side == "query" else usage.doc_length
    if pieces is None:
        return _words(reranker, text, longest)
    return _pieces(reranker, pieces, text, longest, side)


def _words(reranker: Reranker, text: str, longest: int) -> Reading:
    vocabulary = reranker.vocabulary
    words = split_words(text)
    kept = words[:longest]
    spans = [span or (None, None) for span in word_spans(text, kept)]
    shown = tuple(
        Word(word, start, stop, word in vocabulary)
        for word, (start, stop) in zip(kept, spans, strict=True)
    )
    batch = _batch(reranker, vocabulary.ids(kept).tolist())
    return Reading(Text(text, shown, len(words) - len(kept)), batch)


def _pieces(
    reranker: Reranker, settings: PieceText, text: str, longest: int, side: Side
) -> Reading:
    most = settings.query_words if side == "query" else settings.doc_words
    vocabulary = tuple(reranker.saved.vocabulary)
    found = read_pieces(vocabulary, settings.lowercase, text, longest, most)
    # Where both texts are read as one, there is a single [CLS]: the query's.
    joined = side == "document" and reranker.model.one_text
    shown = Text(
        text, found.words[1:] if joined else found.words, found.cut_words + found.cut_pieces
    )
    return Reading(shown, _batch(reranker, found.ids), "pieces", found.cut_words)


def _batch(reranker: Reranker, ids: list[int]) -> TokenBatch:
    device = next(reranker.model.parameters()).device
    padded = torch.tensor(ids or [0], device=device)
    mask = torch.full(padded.shape, float(bool(ids)), device=device)
    return TokenBatch(padded[None], mask[None])


def _count(words: tuple[Word, ...]) -> int:
    """Without [CLS] and [SEP], which nobody wrote. No text can have a word of that name: its own
    brackets are words, or pieces, by themselves."""
    return sum(word.text not in (FIRST, LAST) for word in words)
