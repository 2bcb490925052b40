"""Documents as a model reads them: whole where they fit, else as passages, each with the title.
They end with sentences where possible, and are found one by one: the first needs no further
reading.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.models.io.model_folder import Passages
from glassrank.text.words import MAX_TEXT_CHARS, TextEncoder, TextIds, split_words
from glassrank.types import Doc

Sizes = Callable[[Sequence[str]], NDArray[np.int64]]
"""Sizes (n, c) of texts: what each takes of a model's c limits, tokens and perhaps words."""

# Possessive quantifiers read every run of marks, closing brackets and white space once. All ends
# begin with one of a few characters, so that the text between them is skipped ten times faster.
_END = re.compile(
    r"""[.!?。！？\n](?:
        (?<=[.!?])(?<![.!?]{2})[.!?]*+["'”’»)\]]*+\s++(?![a-z])
      | (?<=[。！？])[。！？]*+[”’」』）]*+\s*+
      | (?<=\n)[ \t\r]*+\n\s*+
    )""",  # noqa: RUF001
    re.VERBOSE,
)
_WORD = re.compile(r"\s*+\S{1,100}\s*+")
"""A word, or a part of a very long one, with the white space around it."""
_CHARACTERS_AT_ONCE = 2_000  # about so many characters are measured together
_LONGEST_SENTENCE = 2_000


class Unit(NamedTuple):
    """A sentence, or a word of one, that ends at `stop`."""

    stop: int
    size: NDArray[np.int64]  # (c,)


def find_sentence_ends(text: str) -> Iterator[int]:
    """Ends of sentences, with the white space behind them; the last is the text's own. A sentence
    that is too long ends with a word.

    >>> list(find_sentence_ends("It is 3.5 m. long! Is it? Yes."))
    [19, 26, 30]
    """
    start = 0
    for stop in chain((end.end() for end in _END.finditer(text)), (len(text),)):
        while stop - start > _LONGEST_SENTENCE:
            last = start + _LONGEST_SENTENCE
            start = max(text.rfind(" ", start, last), text.rfind("\n", start, last)) + 1 or last
            yield start
        if stop > start:
            start = stop
            yield stop


def split_passages(
    text: str, sizes: Sizes, room: NDArray[np.int64], overlap: int
) -> Iterator[range]:
    """Passages of a text, each a range of characters; none where the text is empty.

    >>> def words(texts): return np.array([[len(text.split())] for text in texts])
    >>> text = "The cat sat. It saw a dog, and ran. A dog!"
    >>> [text[p.start : p.stop] for p in split_passages(text, words, np.array([5]), overlap=0)]
    ['The cat sat. ', 'It saw a dog, and ', 'ran. A dog!']
    """
    units = _Units(text, sizes)
    passage: list[Unit] = []
    start, used = 0, np.zeros_like(room)
    while (unit := units.next()) is not None:
        if (used + unit.size <= room).all():
            passage.append(unit)
            used = used + unit.size
            continue
        if (2 * used < room).all() and units.divide(unit, passage[-1].stop if passage else start):
            continue  # rather than leave more than half of the passage empty
        if not passage:  # a single word that is longer than a passage
            yield range(start, unit.stop)
            start = unit.stop
            continue
        yield range(start, passage[-1].stop)
        kept = _kept(passage, overlap, room - unit.size)
        start = passage[-1 - kept].stop
        passage = passage[len(passage) - kept :]
        used = sum((unit.size for unit in passage), np.zeros_like(room))
        units.ready.appendleft(unit)
    if passage:
        yield range(start, passage[-1].stop)


def _kept(passage: Sequence[Unit], overlap: int, room: NDArray[np.int64]) -> int:
    """How many of a passage's last units the next one repeats."""
    used = np.zeros_like(room)
    for count, unit in enumerate(reversed(passage[1:])):
        used = used + unit.size
        if used[0] > overlap or (used > room).any():
            return count
    return len(passage) - 1


class _Units:
    """Sentences of a text, measured some at a time; a long one can be divided into words."""

    def __init__(self, text: str, sizes: Sizes) -> None:
        self._text, self._sizes = text, sizes
        self._ends = find_sentence_ends(text)
        self._at = 0
        self.ready: deque[Unit] = deque()
        """Those that come next."""
        self._words: set[int] = set()  # where a unit ends that cannot be divided

    def next(self) -> Unit | None:
        """None at the end of the text."""
        if not self.ready:
            begin, stops = self._at, []
            for stop in self._ends:
                stops.append(stop)
                if stop - begin > _CHARACTERS_AT_ONCE:
                    break
            self.ready.extend(self._measure(begin, stops))
            self._at = stops[-1] if stops else self._at
        return self.ready.popleft() if self.ready else None

    def divide(self, unit: Unit, start: int) -> bool:
        """Replaces a unit, which begins at `start`, by its words; False if it is a word already."""
        if unit.stop in self._words:
            return False
        stops = [word.end() for word in _WORD.finditer(self._text, start, unit.stop)]
        self._words.update(stops)
        self.ready.extendleft(reversed(self._measure(start, stops)))
        return True

    def _measure(self, start: int, stops: Sequence[int]) -> list[Unit]:
        texts = [self._text[a:b] for a, b in zip([start, *stops], stops, strict=False)]
        return list(map(Unit, stops, self._sizes(texts))) if texts else []


_ALL = 1 << 30
_CHARACTERS_PER_WORD = 100
"""No real word is longer: a text beyond this is too long, without splitting it into words."""
_USUAL_CHARACTERS_PER_WORD = 10  # usually enough to see that a text does not fit


class Passage(NamedTuple):
    """The title, and `text[start:stop]` of the document, read as one text."""

    ids: NDArray[np.int32]  # (L,)
    start: int
    stop: int
    cut: bool = False
    """Whether some of it was not read even so."""


def join_title(doc: Doc) -> str:
    """Title and text, as models read a document that fits."""
    return f"{doc.title} {doc.text}" if doc.title else doc.text


class PassageReader:
    """Divides documents for a model and tokenizes the passages."""

    def __init__(
        self,
        encoder: TextEncoder,
        longest: int,
        most_words: int | None = None,
        settings: Passages | None = None,
    ) -> None:
        """Passages have at most `longest` ids, and at most `most_words` words."""
        self.settings = settings or Passages()
        self.encoder = encoder
        self._longest = longest
        self._usual = _USUAL_CHARACTERS_PER_WORD * longest
        self._most_words = most_words
        self._special = len(encoder.encode([""], max(2, longest))[0].ids)  # [CLS] and [SEP]

    def read(self, docs: Sequence[Doc]) -> "list[ReadDoc]":
        """Reads the first passage of each document."""
        texts = [join_title(doc) for doc in docs]
        beginnings = self._encode([self._beginning(text) for text in texts])
        read = []
        for doc, text, whole in zip(docs, texts, beginnings, strict=True):
            if len(text) > self._usual and whole.cut < 2:  # it may fit
                (whole,) = self._encode([text[: _CHARACTERS_PER_WORD * self._longest]])
            fits = not whole.cut and len(text) <= _CHARACTERS_PER_WORD * self._longest
            read.append(ReadDoc(self, doc, whole, fits=fits))
        return read

    def _beginning(self, text: str) -> str:
        """A short text, or the first words of a long one, which have the same ids as in the whole
        text but for the last word: its tokens may depend on what follows."""
        return text if len(text) <= self._usual else text[: text.rfind(" ", 0, self._usual) + 1]

    def spans(self, doc: Doc) -> Iterator[range]:
        """The passages of a document, as ranges of its text; at least one."""
        text = doc.text[:MAX_TEXT_CHARS]
        room = self._room() - self._sizes([self.prefix(doc.title)])[0]
        spans = split_passages(text, self._sizes, room, self.settings.overlap)
        yield next(spans, range(0))
        yield from islice(spans, self.settings.most - 1)

    def passages(self, doc: Doc, spans: Sequence[range]) -> list[Passage]:
        """Tokenizes passages of a document."""
        prefix = self.prefix(doc.title)
        texts = self._encode([prefix + doc.text[span.start : span.stop] for span in spans])
        return [
            Passage(text.ids, span.start, span.stop, text.cut > 0)
            for text, span in zip(texts, spans, strict=True)
        ]

    def prefix(self, title: str) -> str:
        """The title before each passage, cut to half of the passage."""
        if not title:
            return ""
        half = self._room() // 2
        fitting = title
        if (self._sizes([title])[0] > half).any():
            first = next(split_passages(title[:MAX_TEXT_CHARS], self._sizes, half.clip(min=1), 0))
            fitting = title[: first.stop].rstrip()
        return f"{fitting} "

    def _room(self) -> NDArray[np.int64]:
        """The limits (c,): ids, and words where they are limited too."""
        words = () if self._most_words is None else (self._most_words,)
        return np.array([self._longest - self._special, *words], np.int64)

    def _sizes(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """The sizes of texts: (n, c)."""
        counted = self._most_words is not None
        encoded = self.encoder.encode(texts, _ALL, _ALL if counted else None)
        ids = [len(text.ids) - self._special for text in encoded]
        columns = [ids, [len(split_words(text)) for text in texts]] if counted else [ids]
        return np.array(columns, np.int64).T

    def _encode(self, texts: Sequence[str]) -> list[TextIds]:
        return self.encoder.encode(texts, self._longest, self._most_words)


class ReadDoc:
    """One document, whose further passages are read when they are needed."""

    def __init__(self, reader: PassageReader, doc: Doc, whole: TextIds, *, fits: bool) -> None:
        self._reader = reader
        self.doc = doc
        self.is_whole = fits or reader.settings.most == 1
        """Whether it is one passage."""
        self._spans = iter(()) if self.is_whole else reader.spans(doc)
        self.passages = [Passage(whole.ids, 0, len(doc.text), not fits)] if self.is_whole else []
        """Those read so far."""
        self.next()

    def next(self) -> Passage | None:
        """Reads one more passage; None where there is none."""
        span = next(self._spans, None)
        if span is None:
            return None
        self.passages += self._reader.passages(self.doc, [span])
        return self.passages[-1]

    def all(self) -> "ReadDoc":
        """Reads all passages."""
        self.passages += self._reader.passages(self.doc, list(self._spans))
        return self

    @property
    def texts(self) -> list[str]:
        """The texts of the passages read so far, with the title."""
        if self.is_whole:
            return [join_title(self.doc)]
        prefix = self._reader.prefix(self.doc.title)
        return [prefix + self.doc.text[passage.start : passage.stop] for passage in self.passages]

    @property
    def cut(self) -> bool:
        """Whether some of its text is in no passage read so far."""
        if any(passage.cut for passage in self.passages):
            return True
        return not self.is_whole and self.passages[-1].stop < len(self.doc.text)
