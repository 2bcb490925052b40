"""Candidates of one query, ready to be scored in pieces: their texts, or their stored words."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.models import Words
from glassrank.models.text_batches import in_batches, like_length
from glassrank.ranking.fused import FusedPooling
from glassrank.ranking.fused_gpu import OnGPU
from glassrank.ranking.live import Reranker
from glassrank.retrieve.snapshot import Snapshot
from glassrank.store import Located, Store, text_of

_WORDS_PER_TERM = 2.0
"""The index knows how many terms a document has; stop words, which a model reads, come on top."""
_CHARACTERS_PER_WORD = 6.0
_PADDED_AT_ONCE = {"cpu": 4_096, "cuda": 131_072}
"""Where nothing is fused, stored documents of like length are scored together, up to this many
words with padding: they are made floats first, which take room."""


_MOST_CHARACTERS_PER_WORD = 100


def characters_read(reranker: Reranker) -> int:
    """Of a text. A model reads its first words: the rest need not even be split into words, unless
    these are longer than any that are written."""
    return _MOST_CHARACTERS_PER_WORD * reranker.usage.doc_length


class Candidates(Protocol):
    """What is scored in pieces."""

    sizes: NDArray[np.floating]
    """About how many words are read to score each: what its cost goes by."""

    def scores(self, start: int, stop: int) -> NDArray[np.float32]:
        """Of those from `start` on, up to `stop`."""


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
        """Given texts."""
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
        """Texts of an index's documents, read when they are scored."""
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
        """Of those from `start` on, up to `stop`."""
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
        """The store has all of these documents."""
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
        """Of those from `start` on, up to `stop`."""
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


class PartlyStored:
    """Words that were encoded beforehand, and texts of documents that the store lacks."""

    def __init__(
        self, stored: StoredCandidates, live: TextCandidates, is_stored: NDArray[np.bool_]
    ) -> None:
        self.stored, self.which_stored = stored, np.flatnonzero(is_stored)
        self.live, self.which_live = live, np.flatnonzero(~is_stored)
