"""Candidates of one query, ready to be scored in pieces: their texts, or their stored words.

A stage makes them so: one model with the documents that it ranks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.deadline import Clock
from glassrank.models import Words
from glassrank.models.calibration import Calibration
from glassrank.models.text_batches import in_batches, like_length
from glassrank.ranking.fused import FusedPooling, fused_pooling
from glassrank.ranking.fused_gpu import OnGPU
from glassrank.ranking.live import WORDS_AT_ONCE, Reranker
from glassrank.ranking.planner import CostModel
from glassrank.retrieve import Index
from glassrank.retrieve.snapshot import Snapshot
from glassrank.store import Store, text_of
from glassrank.store.store import Located

_WORDS_PER_TERM = 2.0
"""The index knows how many terms a document has; stop words, which a model reads, come on top."""
_CHARACTERS_PER_WORD = 6.0
_PADDED_AT_ONCE = {"cpu": 4_096, "cuda": 131_072}
"""Where nothing is fused, stored documents of like length are scored together, up to this many
words with padding: they are made floats first, which take room."""


_MOST_CHARACTERS_PER_WORD = 100
_STORED_AT_ONCE = 1_048_576.0
CALIBRATION_DOCS = (2, 8, 32, 64)


def characters_read(reranker: Reranker) -> int:
    """Of a text. A model reads its first words: the rest need not even be split into words, unless
    these are longer than any that are written."""
    return _MOST_CHARACTERS_PER_WORD * reranker.usage.doc_length


class Candidates(Protocol):
    sizes: NDArray[np.floating]
    """About how many words are read to score each: what its cost goes by."""

    def scores(self, start: int, stop: int) -> NDArray[np.float32]: ...


class TextCandidates:
    """Texts, which are encoded when they are scored."""

    def __init__(
        self,
        reranker: Reranker,
        query: Words,
        text: Callable[[int], str],
        sizes: NDArray[np.floating],
        first_stage: NDArray[np.float32] | None = None,
    ) -> None:
        self.sizes = np.minimum(sizes, reranker.usage.doc_length) + 1
        self._reranker = reranker
        self._query = query
        self._text = text
        self._first_stage = first_stage

    @classmethod
    def of_texts(
        cls,
        reranker: Reranker,
        query: Words,
        texts: Sequence[str],
        first_stage: NDArray[np.float32] | None = None,
    ) -> "TextCandidates":
        sizes = np.array([len(text) for text in texts], np.float64) / _CHARACTERS_PER_WORD
        most = characters_read(reranker)
        return cls(reranker, query, lambda place: texts[place][:most], sizes, first_stage)

    @classmethod
    def of_index(
        cls,
        reranker: Reranker,
        query: Words,
        snapshot: Snapshot,
        numbers: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> "TextCandidates":
        docs, most = numbers.tolist(), characters_read(reranker)
        terms = np.array([_terms(snapshot, doc) for doc in docs], np.float64)
        return cls(
            reranker,
            query,
            lambda place: text_of(snapshot.doc(docs[place], most)),
            _WORDS_PER_TERM * terms,
            first_stage,
        )

    def scores(self, start: int, stop: int) -> NDArray[np.float32]:
        texts = [self._text(place) for place in range(start, stop)]
        first = None if self._first_stage is None else self._first_stage[start:stop]
        return self._reranker.text_scores(self._query, texts, first).values


def _terms(snapshot: Snapshot, number: int) -> int:
    segment, doc = snapshot.place(number)
    return int(segment.lengths[doc])


class StoredCandidates:
    """Words that were encoded beforehand: scored by the fused path where the model has one."""

    def __init__(
        self,
        reranker: Reranker,
        fused: FusedPooling | OnGPU | None,
        store: Store,
        query: Words,
        snapshot: Snapshot,
        numbers: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> None:
        self._reranker = reranker
        self._fused = fused
        self._store = store
        self._query = query
        self._first_stage = first_stage
        self._located = store.locate(snapshot, numbers)
        self.sizes: NDArray[np.floating] = np.ones(len(numbers))
        for found in self._located:
            self.sizes[found.which] += found.lengths

    def scores(self, start: int, stop: int) -> NDArray[np.float32]:
        values = np.zeros(stop - start, np.float32)
        first = self._first_stage[start:stop]
        for which, part, starts, lengths in self._located:
            # Places come in order, so those of this piece lie side by side.
            own = slice(*np.searchsorted(which, (start, stop)).tolist())
            found = Located(which[own] - start, part, starts[own], lengths[own])
            if not len(found.which):
                continue
            if self._fused is None:
                self._score_plainly(found, first, values)
            else:
                values[found.which] = self._fused.scores(
                    self._query, part, found.starts, found.lengths, first[found.which]
                )
        return values

    def _score_plainly(
        self, found: Located, first: NDArray[np.float32], values: NDArray[np.float32]
    ) -> None:
        reranker = self._reranker

        def score(batch: NDArray[np.int64]) -> None:
            docs = self._store.words(
                found.part, found.starts[batch], found.lengths[batch], reranker.dtype
            )
            own = found.which[batch]
            values[own] = reranker.word_scores(self._query, docs, torch.from_numpy(first[own]))

        if reranker.alone:
            for _ in in_batches(score, found.lengths, 1, reranker.fast_model, alone=True):
                pass
            return
        for batch in like_length(found.lengths, self._at_once):
            score(batch)

    @property
    def _at_once(self) -> int:
        return _PADDED_AT_ONCE["cuda" if self._query.mask.is_cuda else "cpu"]


class Stage(ABC):
    """One model, and how it comes by the words of documents."""

    calibration: Calibration | None = None
    """Of its scores to probabilities of relevance."""

    def __init__(self, reranker: Reranker, cost: CostModel, at_once: float) -> None:
        """`cost` is that of scoring, by the number of words; `at_once` the most words that are
        scored as one piece when there is no budget to cut it shorter."""
        self.reranker = reranker
        self.cost = cost
        self.query_cost = reranker.query_cost
        self.at_once = at_once
        self.calibration = reranker.usage.calibration

    @abstractmethod
    def ready(
        self, query: Words, docs: NDArray[np.int64], first_stage: NDArray[np.float32]
    ) -> Candidates:
        """Documents by their numbers, with the first stage's scores."""

    def least_ms(self) -> float:
        """What it is likely to take to score a single document."""
        return self.query_cost.predict(1) + self.cost.predict(1)


class IndexStage(Stage):
    """A model on the documents of an index: their stored words, or their texts, encoded live."""

    def __init__(
        self, reranker: Reranker, snapshot: Snapshot, store: Store | None, *, found: bool
    ) -> None:
        """`found` says whether the store is the model's own in the index, or was given."""
        if store is None:
            super().__init__(reranker, reranker.cost, WORDS_AT_ONCE)
        else:
            store.require(snapshot)
            super().__init__(reranker, CostModel(), _STORED_AT_ONCE)
        self.store = store
        self.snapshot = snapshot
        self.found = found
        self._fused = None if store is None else fused_pooling(reranker.fast_model, store)

    def ready(
        self, query: Words, docs: NDArray[np.int64], first_stage: NDArray[np.float32]
    ) -> Candidates:
        if self.store is None:
            return TextCandidates.of_index(self.reranker, query, self.snapshot, docs, first_stage)
        return StoredCandidates(
            self.reranker, self._fused, self.store, query, self.snapshot, docs, first_stage
        )

    def words(self, doc_id: str) -> Words | None:
        """A document's words as they are ranked; None where it is encoded live."""
        if self.store is None:
            return None
        number = self.snapshot.find(doc_id)
        (located,) = self.store.locate(self.snapshot, np.array([number]))
        return self.store.words(located.part, located.starts, located.lengths)

    def calibrate(self, clock: Clock) -> None:
        """Scores a few documents, so that the first query is predicted as well as later ones."""
        docs = some_documents(self.snapshot, max(CALIBRATION_DOCS))
        if not len(docs):
            return
        query = " ".join(self.snapshot.doc(int(docs[0])).text.split()[:8])
        for warm in (False, True):
            for size in CALIBRATION_DOCS:
                began = clock()
                words = self.reranker.encode_query(query)
                some = docs[:size]
                candidates = self.ready(words, some, np.zeros(len(some), np.float32))
                ready = clock()
                candidates.scores(0, len(some))
                if warm:
                    self.query_cost.learn(len(some), ready - began)
                    self.cost.learn(float(candidates.sizes.sum()), clock() - ready)

    def follow(self, index: Index, *, verify: bool) -> "IndexStage":
        """The same on a changed index, with a store that follows it and all that was learned."""
        store = self.store
        if self.found:
            store = Store.find(index, self.reranker.model, verify=verify)
        elif store is not None:
            store = Store.open(store.path, self.reranker.model, index.snapshot, verify=verify)
        fresh = IndexStage(self.reranker, index.snapshot, store, found=self.found)
        if (self.store is None) == (store is None):
            fresh.cost = self.cost
        return fresh


def some_documents(snapshot: Snapshot, count: int) -> NDArray[np.int64]:
    """Spread over the whole index: their lengths are like those of all."""
    total = snapshot.bases[-1]
    return np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64))
