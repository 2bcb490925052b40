"""Candidates of one query, ready to be scored in pieces: their texts, or their stored words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.models.doc_reader import Passage, ReadDoc
from glassrank.models.left_out import LeftOut
from glassrank.models.ranker import Words
from glassrank.models.text_batches import in_batches, like_length
from glassrank.ranking.fused import Fused, is_on_gpu
from glassrank.ranking.live import Reranker
from glassrank.retrieve.snapshot import Snapshot
from glassrank.store import Part, Store
from glassrank.text.encoder import LONGEST_READ
from glassrank.types import Doc

_WORDS_PER_TERM = 2.0
"""The index knows how many terms a document has; stop words, which a model reads, come on top."""
_CHARACTERS_PER_WORD = 6.0
_PADDED_AT_ONCE = {"cpu": 4_096, "cuda": 131_072}
"""Where nothing is fused, stored documents of like length are scored together, up to this many
words with padding: they are made floats first, which take room."""


_MOST_CHARACTERS_PER_WORD = 100


def characters_read(reranker: Reranker) -> int:
    """Of a text, for its first passage: the rest need not even be split into words, unless these
    are longer than any that are written. One more, so that it is known whether there is a rest."""
    return _MOST_CHARACTERS_PER_WORD * reranker.usage.doc_length + 1


class TextCandidates:
    """Texts, which are encoded when they are scored."""

    def __init__(
        self,
        reranker: Reranker,
        query: Words,
        doc: Callable[[int, int], Doc],
        sizes: NDArray[np.floating],
        first_stage: NDArray[np.float32] | None = None,
        left_out: LeftOut | None = None,
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
            np.minimum(self.words, self._reranker.usage.doc_length) + 1,
            np.arange(len(self.words)),
            np.zeros(len(self.words), np.int64),
            self._first_scores,
        )

    @classmethod
    def of_texts(
        cls,
        reranker: Reranker,
        query: Words,
        docs: Sequence[Doc],
        first_stage: NDArray[np.float32] | None = None,
    ) -> "TextCandidates":
        """Given texts."""
        sizes = np.array([len(doc.text) for doc in docs], np.float64) / _CHARACTERS_PER_WORD
        return cls(reranker, query, lambda place, _: docs[place], sizes, first_stage)

    @classmethod
    def of_index(
        cls,
        reranker: Reranker,
        query: Words,
        snapshot: Snapshot,
        numbers: NDArray[np.int64],
        first_stage: NDArray[np.float32],
        left_out: LeftOut | None = None,
    ) -> "TextCandidates":
        """Texts of an index's documents, read when they are scored."""
        docs = numbers.tolist()
        terms = np.array([_terms(snapshot, doc) for doc in docs], np.float64)
        return cls(
            reranker,
            query,
            lambda place, characters: snapshot.doc(docs[place], characters),
            _WORDS_PER_TERM * terms,
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
        return _TextPassages(sizes, np.array(wanted), numbers, self._next_scores)

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
            (doc,) = self._reranker.read([self._doc(place, LONGEST_READ + 1)])
            self._long[place] = doc
        passage = doc.next()
        self._cut[place] = doc.cut
        return passage

    def _scores(
        self, places: NDArray[np.int64], ids: Sequence[NDArray[np.int32]]
    ) -> NDArray[np.float32]:
        first = None if self._first_stage is None else self._first_stage[places]
        return self._reranker.passage_scores(self._query, ids, first, self._left_out)

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

    def scores(self, start: int, stop: int) -> NDArray[np.float32]:
        """Of those from `start` on, up to `stop`."""
        return self.score(self.docs[start:stop])


def _terms(snapshot: Snapshot, number: int) -> int:
    segment, doc = snapshot.place(number)
    return int(segment.lengths[doc])


class StoredCandidates:
    """Words that were encoded beforehand: scored by the fused path where the model has one."""

    def __init__(
        self,
        reranker: Reranker,
        fused: Fused | None,
        store: Store,
        query: Words,
        snapshot: Snapshot,
        numbers: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> None:
        """The store has all of these documents."""
        self.shares = reranker.first_stage_shares(len(numbers), first_stage)
        self._scorer = _StoredScorer(reranker, fused, store, query)
        self._first_stage = first_stage
        self._located = store.locate(snapshot, numbers)
        zeros = np.zeros(len(numbers), np.int64)
        groups = [_Group(one.which, one.part, one.first) for one in self._located]
        self.first = _StoredPassages(
            self._scorer, groups, np.arange(len(numbers)), zeros, first_stage
        )
        self._further_given = False

    def further(self, docs: int) -> "_StoredPassages | None":
        """All of them: second passages, then third ones, and so on."""
        if self._further_given:
            return None
        self._further_given = True
        columns = []
        for group, one in enumerate(self._located):
            counts = np.where(one.which < docs, one.counts - 1, 0)
            if not counts.any():
                continue
            which = np.repeat(one.which, counts)
            ends = np.cumsum(counts)
            number = 1 + np.arange(len(which)) - np.repeat(ends - counts, counts)
            passages = np.repeat(one.first, counts) + number
            columns.append((which, number, np.full(len(which), group), passages))
        if not columns:
            return None
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
        order = np.lexsort(joined[:2])
        owners, number, groups_of, passages = (column[order] for column in joined)
        groups = []
        for number_of, located in enumerate(self._located):
            places = np.flatnonzero(groups_of == number_of)
            groups.append(_Group(places, located.part, passages[places]))
        first = self._first_stage[owners]
        return _StoredPassages(self._scorer, groups, owners, number, first)

    def spans(self, docs: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Characters of passages, by document and number; -1 where that is the whole text."""
        spans = np.full((len(docs), 2), -1)
        for one in self._located:
            several = np.flatnonzero(one.counts > 1)
            rows = np.searchsorted(docs, one.which[several])
            there = rows < len(docs)
            rows, several = rows[there], several[there]
            spans[rows] = one.part.spans[one.first[several] + numbers[rows]]
        return spans

    def cut(self, docs: int) -> NDArray[np.bool_]:
        """Whose text goes on behind the passages that are stored."""
        cut = np.zeros(len(self.shares), np.bool_)
        for one in self._located:
            cut[one.which] = one.cut
        return cut[:docs]


class _Group(NamedTuple):
    """Passages of one part."""

    places: NDArray[np.int64]  # (n,) among the candidates, ascending
    part: Part
    passages: NDArray[np.int64]  # (n,) their numbers in the part


class _StoredPassages:
    """Some stored passages, in the order in which they are scored."""

    def __init__(
        self,
        scorer: "_StoredScorer",
        groups: Sequence[_Group],
        docs: NDArray[np.int64],
        numbers: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> None:
        self.docs, self.numbers = docs, numbers
        self._scorer = scorer
        self._first_stage = first_stage
        self._rows = []
        self.sizes: NDArray[np.floating] = np.ones(len(docs))
        for places, part, passages in groups:
            starts, lengths = part.passage_rows(passages)
            self.sizes[places] += lengths
            self._rows.append(_Rows(places, part, starts, lengths))

    def scores(self, start: int, stop: int) -> NDArray[np.float32]:
        """Of those from `start` on, up to `stop`."""
        values = np.zeros(stop - start, np.float32)
        first = self._first_stage[start:stop]
        for places, part, starts, lengths in self._rows:
            # Places come in order, so those of this piece lie side by side.
            own = slice(*np.searchsorted(places, (start, stop)).tolist())
            rows = _Rows(places[own] - start, part, starts[own], lengths[own])
            if len(rows.places):
                values[rows.places] = self._scorer.scores(rows, first[rows.places])
        return values


class _Rows(NamedTuple):
    """Passages as runs of a part's rows."""

    places: NDArray[np.int64]
    part: Part
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


class _StoredScorer:
    """One query on stored passages."""

    def __init__(self, reranker: Reranker, fused: Fused | None, store: Store, query: Words) -> None:
        self._reranker = reranker
        self._fused = fused
        self._store = store
        self._query = query

    def scores(self, rows: _Rows, first: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of passages of one part."""
        if self._fused is not None:
            return self._fused.scores(self._query, rows.part, rows.starts, rows.lengths, first)
        values = np.zeros(len(rows.starts), np.float32)
        reranker = self._reranker

        def score(batch: NDArray[np.int64]) -> None:
            words = self._store.words(
                rows.part, rows.starts[batch], rows.lengths[batch], reranker.dtype
            )
            values[batch] = reranker.word_scores(self._query, words, first[batch])

        if reranker.alone:
            for _ in in_batches(score, rows.lengths, 1, reranker.fast_model, alone=True):
                pass
            return values
        for batch in like_length(rows.lengths, self._at_once):
            score(batch)
        return values

    @property
    def _at_once(self) -> int:
        return _PADDED_AT_ONCE["cuda" if is_on_gpu(self._reranker.model) else "cpu"]


class PartlyStored:
    """Words that were encoded beforehand, and texts of documents that the store lacks."""

    def __init__(
        self, stored: StoredCandidates, live: TextCandidates, is_stored: NDArray[np.bool_]
    ) -> None:
        self.stored, self.which_stored = stored, np.flatnonzero(is_stored)
        self.live, self.which_live = live, np.flatnonzero(~is_stored)
