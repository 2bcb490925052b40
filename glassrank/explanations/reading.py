"""A text as the model reads it: its tokens, their ids, and their places in the text. The word
tokenizer changes nothing but case, so words are found one after the other.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.explanations.structure import Side, Text, Word
from glassrank.models.doc_reader import join_title
from glassrank.models.model import SubwordText, TokenBatch, make_batch
from glassrank.rerank import Reranker
from glassrank.text import Vocabulary, split_words
from glassrank.text.english import is_function_word
from glassrank.text.subwords import PublishedTokenizer, WordPieceEncoder
from glassrank.types import Doc

Span = tuple[int, int]

_MAX_MISSES, _NEAR = 100, 1_000


@dataclass(frozen=True)
class TokenizedText:
    """A text, the tokens that the model reads of it, and their ids."""

    text: Text
    batch: TokenBatch  # of one text; one place of padding if it has no tokens
    unit: Literal["words", "subwords"] = "words"
    cut_words: int = 0
    """Words that were cut before they became subwords."""
    left_out: int = 0
    """Stop words of the whole text, if the model reads none."""

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens."""
        return tuple(word.text for word in self.text.words)

    def cut_to(self, count: int) -> "TokenizedText":
        """For models that read only the first `count` tokens."""
        cut = self.text.cut + _count(self.text.words[count:])
        return replace(self, text=replace(self.text, words=self.text.words[:count], cut=cut))

    def only(self, kept: NDArray[np.bool_]) -> "TokenizedText":
        """Without the tokens that a store leaves out."""
        words = tuple(word for word, stays in zip(self.text.words, kept, strict=False) if stays)
        return replace(
            self,
            text=replace(self.text, words=words),
            batch=TokenBatch(self.batch.ids[:, kept], self.batch.mask[:, kept]),
        )

    def notes(self, side: Side) -> Iterator[str]:
        """What the model did not read, and unknown words."""
        read, cut = _count(self.text.words), self.text.cut
        if cut and self.unit == "words":
            yield f"The model read the first {read} words of the {side}; {cut} were cut."
        elif cut:
            kinds = {"subwords": cut - self.cut_words, "words": self.cut_words}
            missing = " and ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
            yield f"The model read the first {read} subwords of the {side}; {missing} were cut."
        if self.left_out:
            count = f"{self.left_out} of the {side}"
            yield f"The model reads no function words and no punctuation: it left out {count}."
        unknown = sum(not word.known for word in self.text.words)
        if unknown:
            which = f"Of the {side}'s {self.unit} {unknown}"
            yield f"{which} are not in the vocabulary and share vectors."


def read(reranker: Reranker, text: str, side: Side) -> TokenizedText:
    """Tokenizes as much of a text as the model reads."""
    # Half a surrogate pair becomes a question mark: it cannot be printed.
    text = text.encode("utf-8", "replace").decode()
    usage, subwords = reranker.usage, reranker.model.subword_text
    longest = usage.query_length if side == "query" else usage.doc_length
    if subwords is None:
        return _read_words(reranker, text, longest)
    return _read_subwords(reranker, subwords, text, longest, side)


class ReadPassage(NamedTuple):
    """The passage that a document is ranked by."""

    number: int
    """Among the document's passages, from 0."""
    start: int
    stop: int
    """Characters of the text, without the title."""
    further: float = 0.0
    """What the document's other passages add to its score."""
    truncated: bool = False
    """Whether some passages were not read."""


def read_doc(reranker: Reranker, doc: Doc, passage: ReadPassage | None) -> TokenizedText:
    """Tokenizes a document, or a passage with its title; places are in the whole text."""
    if passage is None:
        return read(reranker, join_title(doc), "document")
    prefix = reranker.passages.prefix(doc.title)
    before = passage.start + len(join_title(doc)) - len(doc.text)
    reading = read(reranker, prefix + doc.text[passage.start : passage.stop], "document")
    shift = before - len(prefix)

    def shift_word(word: Word) -> Word:
        if word.start is None or word.stop is None or word.start < len(prefix):
            return word
        return replace(word, start=word.start + shift, stop=word.stop + shift)

    whole = join_title(doc).encode("utf-8", "replace").decode()
    text = Text(
        whole,
        tuple(map(shift_word, reading.text.words)),
        reading.text.cut,
        (before, before + passage.stop - passage.start),
    )
    return replace(reading, text=text)


def _read_words(reranker: Reranker, text: str, longest: int) -> TokenizedText:
    vocabulary = reranker.vocabulary
    words = split_words(text)
    removed = reranker.usage.remove_stop_words
    places = [n for n, word in enumerate(words) if not (removed and is_function_word(word))]
    kept = places[:longest]
    # Place all words first: a word that is left out may contain another.
    spans = word_spans(text, words[: kept[-1] + 1] if kept else [])
    shown = tuple(_word(words[place], spans[place], vocabulary) for place in kept)
    batch = _batch(reranker, vocabulary.ids([word.text for word in shown]).tolist())
    read = Text(text, shown, len(places) - len(kept))
    return TokenizedText(read, batch, left_out=len(words) - len(places))


def _word(word: str, span: Span | None, vocabulary: Vocabulary) -> Word:
    start, stop = span or (None, None)
    return Word(word, start, stop, word in vocabulary)


def _read_subwords(
    reranker: Reranker, settings: SubwordText, text: str, longest: int, side: Side
) -> TokenizedText:
    if reranker.saved.tokenizer is not None:
        return _read_published(reranker, reranker.saved.tokenizer, text, longest)
    most = settings.query_words if side == "query" else settings.doc_words
    vocabulary = tuple(reranker.saved.vocabulary)
    subwords = read_subwords(vocabulary, settings.lowercase, text, longest, most)
    # A cross-encoder reads both texts as one, with a single [CLS]: the query's.
    joined = side == "document" and reranker.model.info.is_cross_encoder
    shown = Text(
        text,
        subwords.words[1:] if joined else subwords.words,
        subwords.cut_words + subwords.cut_subwords,
    )
    return TokenizedText(shown, _batch(reranker, subwords.ids), "subwords", subwords.cut_words)


def _read_published(
    reranker: Reranker, tokenizer: PublishedTokenizer, text: str, longest: int
) -> TokenizedText:
    """With a published model's own tokenizer; a token that continues a word is shown as `##…`."""
    (encoded,) = tokenizer.encode([text], longest)
    before, after = tokenizer.around
    kept = tokenizer.tokens(text)[: len(encoded.ids) - before - after]
    shown = [
        Word(f"##{token.text}" if token.goes_on else token.text, token.start, token.stop, True)
        for token in kept
    ]
    marks = [Word(FIRST, None, None, True)] * before, [Word(LAST, None, None, True)] * after
    read = Text(text, (*marks[0], *shown, *marks[1]), encoded.cut)
    return TokenizedText(
        read, _batch(reranker, encoded.ids.tolist()), "subwords", encoded.cut_words
    )


def _batch(reranker: Reranker, ids: list[int]) -> TokenBatch:
    return make_batch([np.array(ids, np.int32)], reranker.device)


def _count(words: tuple[Word, ...]) -> int:
    """Without [CLS] and [SEP]. No text has a token of that name: its own brackets are tokens."""
    return sum(word.text not in (FIRST, LAST) for word in words)


FIRST, LAST, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"


class Subwords(NamedTuple):
    """A text's subwords, with [CLS] and [SEP], and how much was cut."""

    words: tuple[Word, ...]  # (L,) each a subword
    ids: list[int]  # (L,)
    cut_words: int
    cut_subwords: int
    """Of the words that were kept."""


def read_subwords(
    vocabulary: tuple[str, ...], lowercase: bool, text: str, longest: int, most_words: int | None
) -> Subwords:
    """`longest` counts [CLS] and [SEP]; `text` has no halves of surrogate pairs."""
    return _make_reader(vocabulary, lowercase).read(text, longest, most_words)


class SubwordReader(WordPieceEncoder):
    """An encoder that also returns the places of subwords in the text."""

    def read(self, text: str, longest: int, most_words: int | None) -> Subwords:
        """The encoder's subwords, each with its place."""
        (encoded,) = self.encode([text], longest, most_words)
        spans = self._find_spans(text, most_words)
        ids = encoded.ids.tolist()
        inside = [self.vocabulary[number] for number in ids[1:-1]]
        places = (span or (None, None) for span in spans)
        shown = (
            Word(subword, start, stop, subword != UNKNOWN)
            for subword, (start, stop) in zip(inside, places, strict=False)
        )
        words = (Word(FIRST, None, None, True), *shown, Word(LAST, None, None, True))
        return Subwords(words, ids, encoded.cut_words, encoded.cut_subwords)

    def _find_spans(self, text: str, most_words: int | None) -> list[Span | None]:
        """Of all subwords. With `most_words`, subwords come from words joined by spaces."""
        if most_words is None:
            origins: Sequence[int | None] = range(len(text))
            joined = text
        else:
            kept = split_words(text)[:most_words]
            origins, joined = joined_origins(text, kept), " ".join(kept)
        subwords = self._tokenizer.encode(joined, add_special_tokens=False)
        return _separate([_find_origin(span, origins) for span in subwords.offsets], text)


_make_reader = lru_cache(maxsize=4)(SubwordReader)
"""Making one takes as long as reading hundreds of texts."""


def _find_origin(span: Span, origins: Sequence[int | None]) -> Span | None:
    if span[0] >= span[1]:
        return None
    start, last = origins[span[0]], origins[span[1] - 1]
    return None if start is None or last is None else (start, last + 1)


def _separate(spans: Sequence[Span | None], text: str) -> list[Span | None]:
    """Makes spans follow each other. A character that becomes several subwords (a Korean syllable)
    belongs to the last. A combining accent belongs to its letter."""
    apart: list[Span | None] = []
    begin = len(text)  # of the next subword
    for span in reversed(spans):
        start, stop = span or (begin, begin)
        while stop < begin and unicodedata.combining(text[stop]):
            stop += 1
        apart.append((start, min(stop, begin)) if start < begin else None)
        begin = min(start, begin)
    return apart[::-1]


def word_spans(text: str, words: Sequence[str]) -> list[Span | None]:
    """Start and stop of each lower-cased word, in order; None if it is not in the text.

    >>> word_spans("The cat: CATS!", ["the", "cat", ":", "cats", "!"])
    [(0, 3), (4, 7), (7, 8), (9, 13), (13, 14)]
    >>> word_spans("one", ["two", "one"])
    [None, (0, 3)]
    """
    lowered, origins = _lower(text)
    return [
        None if span is None else (origins[span[0]], origins[span[1] - 1] + 1)
        for span in _find_words(lowered, words)
    ]


def joined_origins(text: str, words: Sequence[str]) -> list[int | None]:
    """The place in the text of each character of `" ".join(words)`; None for the spaces, and for
    words that are not in the text.

    >>> joined_origins("A-b", ["a", "-", "b"])
    [0, None, 1, None, 2]
    """
    lowered, origins = _lower(text)
    places: list[int | None] = []
    for word, span in zip(words, _find_words(lowered, words), strict=True):
        places += [None] * len(word) if span is None else [origins[at] for at in range(*span)]
        places.append(None)
    return places[:-1]


def _find_words(lowered: str, words: Sequence[str]) -> Iterator[Span | None]:
    at = missed = 0
    for word in words:
        wanted = _plain_sigma(word)
        # Once many words are missing, do not search the whole text for each of them.
        stop = len(lowered) if missed < _MAX_MISSES else at + _NEAR
        start = lowered.find(wanted, at, stop)
        if start < 0 or not wanted:
            missed += 1
            yield None
            continue
        at = start + len(wanted)
        yield start, at


def _lower(text: str) -> tuple[str, Sequence[int]]:
    """The text in lower case, and each character's place: some become two."""
    # Half a surrogate pair reaches the tokenizer as a question mark.
    text = text.encode("utf-8", "replace").decode()
    lowered = _plain_sigma(text.lower())
    if len(lowered) == len(text):  # no letter became two, and only sigmas look at their neighbours
        return lowered, range(len(text))
    return _lower_one_by_one(text)


def _lower_one_by_one(text: str) -> tuple[str, Sequence[int]]:
    """The slow form, which the fast one must equal."""
    subwords = [character.lower() for character in text]
    origins = [place for place, subword in enumerate(subwords) for _ in subword]
    return _plain_sigma("".join(subwords)), origins


def _plain_sigma(text: str) -> str:
    """A small sigma has another form at the end of a word, which a single letter cannot know."""
    return text.replace("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")
