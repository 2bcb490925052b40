"""Documents as a model reads them: whole where they fit, else as passages, each with the title."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.models.saved import Passages
from glassrank.text.encoder import LONGEST_READ, TextEncoder, TextIds
from glassrank.text.passages import split
from glassrank.text.word_splitting import split_words
from glassrank.types import Doc

_ALL = 1 << 30
_CHARACTERS_PER_WORD = 100
"""No word that is written is longer: what a model cannot read for its length is found without
splitting all of it into words."""


class Passage(NamedTuple):
    """What is read as one text: the title, and `text[start:stop]` of the document."""

    ids: NDArray[np.int32]  # (L,)
    start: int
    stop: int
    cut: bool = False
    """Whether even so some of it was not read."""


def text_of(doc: Doc) -> str:
    """What the models read of a document, if it fits."""
    return f"{doc.title} {doc.text}" if doc.title else doc.text


class PassageReader:
    """Where a model's documents are divided, and the ids of each part."""

    def __init__(
        self,
        encoder: TextEncoder,
        longest: int,
        most_words: int | None = None,
        settings: Passages | None = None,
    ) -> None:
        """At most `longest` ids at once, of at most `most_words` words where that is given."""
        self.settings = settings or Passages()
        self._encoder = encoder
        self._longest = longest
        self._most_words = most_words
        self._special = len(encoder.encode([""], max(2, longest))[0].ids)  # [CLS] and [SEP]

    def read(self, docs: Sequence[Doc]) -> "list[ReadDoc]":
        """Documents, of which the first passages are read."""
        most = _CHARACTERS_PER_WORD * self._longest
        texts = self._encode([text_of(doc)[:most] for doc in docs])
        return [
            ReadDoc(self, doc, text, fits=not text.cut and len(text_of(doc)) <= most)
            for doc, text in zip(docs, texts, strict=True)
        ]

    def spans(self, doc: Doc) -> Iterator[range]:
        """Of a document's passages, in its text without the title; one at least."""
        text = doc.text[:LONGEST_READ]
        room = self._room() - self._sizes([self.prefix(doc.title)])[0]
        spans = split(text, self._sizes, room, self.settings.overlap)
        yield next(spans, range(0))
        yield from islice(spans, self.settings.most - 1)

    def passages(self, doc: Doc, spans: Sequence[range]) -> list[Passage]:
        """Those of a document's passages, by their places."""
        prefix = self.prefix(doc.title)
        texts = self._encode([prefix + doc.text[span.start : span.stop] for span in spans])
        return [
            Passage(text.ids, span.start, span.stop, text.cut > 0)
            for text, span in zip(texts, spans, strict=True)
        ]

    def prefix(self, title: str) -> str:
        """What stands before each passage: the title, or so much of it as leaves half of the room
        for the text."""
        if not title:
            return ""
        half = self._room() // 2
        fitting = title
        if (self._sizes([title])[0] > half).any():
            first = next(split(title[:LONGEST_READ], self._sizes, half.clip(min=1), 0))
            fitting = title[: first.stop].rstrip()
        return f"{fitting} "

    def _room(self) -> NDArray[np.int64]:
        """(c,) ids, and words where these are counted too."""
        words = () if self._most_words is None else (self._most_words,)
        return np.array([self._longest - self._special, *words], np.int64)

    def _sizes(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """(n, c): what each text takes of the room."""
        counted = self._most_words is not None
        encoded = self._encoder.encode(texts, _ALL, _ALL if counted else None)
        ids = [len(text.ids) - self._special for text in encoded]
        columns = [ids, [len(split_words(text)) for text in texts]] if counted else [ids]
        return np.array(columns, np.int64).T.reshape(len(texts), len(columns))

    def _encode(self, texts: Sequence[str]) -> list[TextIds]:
        return self._encoder.encode(texts, self._longest, self._most_words)


class ReadDoc:
    """One document. Further passages are read when they are asked for."""

    def __init__(self, reader: PassageReader, doc: Doc, whole: TextIds, *, fits: bool) -> None:
        self._reader = reader
        self.doc = doc
        self.is_whole = fits or reader.settings.most == 1
        """Whether it is read as one text."""
        self._spans = iter(()) if self.is_whole else reader.spans(doc)
        first = next(self._spans, None)
        self.passages = (
            [Passage(whole.ids, 0, len(doc.text), not fits)]
            if first is None
            else reader.passages(doc, [first])
        )
        """As far as they are read."""

    def next(self) -> Passage | None:
        """One more; None where there is none."""
        span = next(self._spans, None)
        if span is None:
            return None
        self.passages += self._reader.passages(self.doc, [span])
        return self.passages[-1]

    def all(self) -> "ReadDoc":
        """The same with all passages read."""
        self.passages += self._reader.passages(self.doc, list(self._spans))
        return self

    @property
    def texts(self) -> list[str]:
        """What each passage is of, the title before it, as far as they are read."""
        if self.is_whole:
            return [text_of(self.doc)]
        prefix = self._reader.prefix(self.doc.title)
        return [prefix + self.doc.text[passage.start : passage.stop] for passage in self.passages]

    @property
    def cut(self) -> bool:
        """Whether something of it is in no passage that was read so far, or not whole."""
        if any(passage.cut for passage in self.passages):
            return True
        return not self.is_whole and self.passages[-1].stop < len(self.doc.text)
