"""Candidates of one query as texts, read and encoded when they are scored, in pieces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassrank.index.snapshot import Snapshot
from glassrank.models.doc_reader import Passage, ReadDoc
from glassrank.models.model import TokenEmbeddings
from glassrank.models.text_batches import TokenFilter
from glassrank.rerank.reranker import Reranker
from glassrank.text.encoder import MAX_TEXT_CHARS
from glassrank.types import Doc

_WORDS_PER_TERM = 2.0
"""The index knows how many terms a document has; stop words, which a model reads, come on top."""
_CHARACTERS_PER_WORD = 6.0
_MOST_CHARACTERS_PER_WORD = 100


def characters_read(reranker: Reranker) -> int:
    """Of a text, for its first passage: the rest need not even be split into words, unless these
    are longer than any that are written. One more, so that it is known whether there is a rest."""
    return _MOST_CHARACTERS_PER_WORD * reranker.usage.doc_length + 1


def text_sizes(docs: Sequence[Doc]) -> NDArray[np.float64]:
    """About how many words each of these texts has."""
    return np.array([len(doc.text) for doc in docs], np.float64) / _CHARACTERS_PER_WORD


def first_sizes(reranker: Reranker, words: NDArray[np.floating]) -> NDArray[np.floating]:
    """About how many are read of documents with so many words, for their first passages."""
    return np.asarray(np.minimum(words, reranker.usage.doc_length) + 1)


class TextCandidates:
    """Texts, which are encoded when they are scored."""

    def __init__(
        self,
        reranker: Reranker,
        query: TokenEmbeddings,
        doc: Callable[[int, int], Doc],
        sizes: NDArray[np.floating],
        first_stage: NDArray[np.float32] | None = None,
        left_out: TokenFilter | None = None,
    ) -> None:
        """`doc(place, characters)` reads so much of a document."""
        self._left_out = left_out
        self.shares = reranker.first_stage_shares(len(sizes), first_stage)
        self.words = sizes
        """About how many each document has in all."""
        self._reranker = reranker
        self._query = query
        self._doc = doc
        self._first_stage = first_stage
        self._long: dict[int, ReadDoc] = {}  # those of several passages, as far as they are read
        self._cut = np.zeros(len(sizes), np.bool_)
        self._rounds = 0

    @property
    def first(self) -> "_TextPassages":
        """The first passages of all. Made when asked for: a query that is over leaves no cycle of
        references behind, which would keep its index open."""
        return _TextPassages(
            first_sizes(self._reranker, self.words),
            np.arange(len(self.words)),
            np.zeros(len(self.words), np.int64),
            self._first_scores,
            self._reranker.stops,
        )

    @classmethod
    def of_texts(
        cls,
        reranker: Reranker,
        query: TokenEmbeddings,
        docs: Sequence[Doc],
        first_stage: NDArray[np.float32] | None = None,
    ) -> "TextCandidates":
        """Given texts."""
        return cls(reranker, query, lambda place, _: docs[place], text_sizes(docs), first_stage)

    @classmethod
    def of_index(
        cls,
        reranker: Reranker,
        query: TokenEmbeddings,
        snapshot: Snapshot,
        numbers: NDArray[np.int64],
        first_stage: NDArray[np.float32],
        left_out: TokenFilter | None = None,
    ) -> "TextCandidates":
        """Texts of an index's documents, read when they are scored."""
        docs = numbers.tolist()
        return cls(
            reranker,
            query,
            lambda place, characters: snapshot.doc(docs[place], characters),
            index_sizes(snapshot, docs),
            first_stage,
            left_out,
        )

    def _first_scores(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        characters = characters_read(self._reranker)
        found = self._reranker.read([self._doc(place, characters) for place in places.tolist()])
        for place, doc in zip(places.tolist(), found, strict=True):
            self._cut[place] = doc.cut
            if not doc.is_whole:
                self._long[place] = doc
        return self._scores(places, [doc.passages[0].ids for doc in found])

    def further(self, docs: int) -> "_TextPassages | None":
        """One more passage of each document that is not read to its end."""
        self._rounds += 1
        wanted = [
            place
            for place, doc in sorted(self._long.items())
            if place < docs and len(doc.passages) == self._rounds and doc.cut
        ]
        if not wanted:
            return None
        sizes = np.full(len(wanted), self._reranker.usage.doc_length + 1.0)
        numbers = np.full(len(wanted), self._rounds)
        places, stops = np.array(wanted), self._reranker.stops
        return _TextPassages(sizes, places, numbers, self._next_scores, stops)

    def _next_scores(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        values = np.full(len(places), -np.inf, np.float32)
        passages = [self._next(place) for place in places.tolist()]
        there = np.array([passage is not None for passage in passages])
        ids = [passage.ids for passage in passages if passage is not None]
        values[there] = self._scores(places[there], ids)
        return values

    def _next(self, place: int) -> Passage | None:
        doc = self._long[place]
        if self._rounds == 1 and len(doc.doc.text) == characters_read(self._reranker):
            (doc,) = self._reranker.read([self._doc(place, MAX_TEXT_CHARS + 1)])
            self._long[place] = doc
        passage = doc.next()
        self._cut[place] = doc.cut
        return passage

    def _scores(
        self, places: NDArray[np.int64], ids: Sequence[NDArray[np.int32]]
    ) -> NDArray[np.float32]:
        first = None if self._first_stage is None else self._first_stage[places]
        return self._reranker.score_passages(self._query, ids, first, self._left_out)

    def spans(self, docs: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Characters of passages, by document and number; -1 where that is the whole text."""
        spans = np.full((len(docs), 2), -1)
        pairs = zip(docs.tolist(), numbers.tolist(), strict=True)
        for row, (place, number) in enumerate(pairs):
            if place in self._long:
                passage = self._long[place].passages[number]
                spans[row] = passage.start, passage.stop
        return spans

    def cut(self, docs: int) -> NDArray[np.bool_]:
        """Whose text goes on behind the passages that were read."""
        return self._cut[:docs].copy()


@dataclass
class _TextPassages:
    """Some passages, which are read and encoded when they are scored."""

    sizes: NDArray[np.floating]
    docs: NDArray[np.int64]
    numbers: NDArray[np.int64]
    score: Callable[[NDArray[np.int64]], NDArray[np.float32]]
    stops: bool

    def scores(self, start: int, stop: int) -> NDArray[np.float32]:
        """Of those from `start` on, up to `stop`."""
        return self.score(self.docs[start:stop])


def index_sizes(snapshot: Snapshot, numbers: Sequence[int]) -> NDArray[np.float64]:
    """About how many words each of these documents has."""
    places = map(snapshot.locate, numbers)
    return _WORDS_PER_TERM * np.array([segment.lengths[doc] for segment, doc in places], np.float64)
