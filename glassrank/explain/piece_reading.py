"""A text as a transformer reads it: pieces of words, and where each stands for a person.

The same pieces as the ranker's own encoder gives: [CLS] and [SEP] around those of the text, words
counted first and pieces after that.
"""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from glassrank.explain.spans import Span, joined_origins
from glassrank.explain.structure import Word
from glassrank.text import split_words
from glassrank.text.wordpieces import PieceEncoder

FIRST, LAST, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"


class Pieces(NamedTuple):
    words: tuple[Word, ...]  # (L,) each a piece
    ids: list[int]  # (L,)
    cut_words: int
    cut_pieces: int
    """Of the words that were kept."""


def read_pieces(
    vocabulary: tuple[str, ...], lowercase: bool, text: str, longest: int, most_words: int | None
) -> Pieces:
    """`longest` counts [CLS] and [SEP]; `text` must be free of halves of surrogate pairs."""
    return _reader(vocabulary, lowercase).read(text, longest, most_words)


@lru_cache(maxsize=4)
def _reader(vocabulary: tuple[str, ...], lowercase: bool) -> "PieceReader":
    """Making one takes as long as reading hundreds of texts."""
    return PieceReader(vocabulary, lowercase)


class PieceReader(PieceEncoder):
    """An encoder that also tells where the pieces stand in the text."""

    def read(self, text: str, longest: int, most_words: int | None) -> Pieces:
        (encoded,) = self.encode([text], longest, most_words)
        spans = self._spans(text, most_words)
        ids = encoded.ids.tolist()
        inside = [self.vocabulary[number] for number in ids[1:-1]]
        places = (span or (None, None) for span in spans)
        shown = (
            Word(piece, start, stop, piece != UNKNOWN)
            for piece, (start, stop) in zip(inside, places, strict=False)
        )
        words = (Word(FIRST, None, None, True), *shown, Word(LAST, None, None, True))
        return Pieces(words, ids, encoded.cut_words, encoded.cut_pieces)

    def _spans(self, text: str, most_words: int | None) -> list[Span | None]:
        """Of all pieces. Where words are counted, pieces are made of these, with a space between
        any two: then it takes two steps back to the text."""
        if most_words is None:
            origins: Sequence[int | None] = range(len(text))
            joined = text
        else:
            kept = split_words(text)[:most_words]
            origins, joined = joined_origins(text, kept), " ".join(kept)
        pieces = self._tokenizer.encode(joined, add_special_tokens=False)
        return _apart([_origin(span, origins) for span in pieces.offsets], text)


def _origin(span: Span, origins: Sequence[int | None]) -> Span | None:
    if span[0] >= span[1]:
        return None
    start, last = origins[span[0]], origins[span[1] - 1]
    return None if start is None or last is None else (start, last + 1)


def _apart(spans: Sequence[Span | None], text: str) -> list[Span | None]:
    """One after the other. Of one character that makes several pieces, as a Korean syllable does,
    the last piece has it. An accent that is a character of its own belongs to what it stands on.
    """
    found: list[Span | None] = []
    begin = len(text)  # of the next piece
    for span in reversed(spans):
        start, stop = span or (begin, begin)
        while stop < begin and unicodedata.combining(text[stop]):
            stop += 1
        found.append((start, min(stop, begin)) if start < begin else None)
        begin = min(start, begin)
    return found[::-1]
