"""A stage: one model with the documents that it ranks, and what its work costs here."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Clock, Deadline, now
from glassrank.embeddings import Store
from glassrank.index import Index
from glassrank.index.snapshot import Snapshot
from glassrank.models.calibration import Calibration
from glassrank.models.model import TokenEmbeddings
from glassrank.models.text_batches import TokenFilter
from glassrank.rerank.best_passages import DocCandidates, ScoredDocs, Scoring
from glassrank.rerank.cost_model import CostModel
from glassrank.rerank.model_language import warn_if_texts_are_foreign
from glassrank.rerank.reranker import TOKENS_AT_ONCE, WORDS_AT_ONCE, Reranker
from glassrank.rerank.scheduler import Scheduler
from glassrank.rerank.stored_candidates import PartlyStored, StoredCandidates, fused_pooling
from glassrank.rerank.text_candidates import TextCandidates, first_sizes, text_sizes
from glassrank.types import Doc

CALIBRATION_DOCS = (2, 8, 32, 64)
_STORED_AT_ONCE = 1_048_576.0
_LONG_ENOUGH_MS = 100.0
"""A model that takes so long for a few documents has shown what it costs."""
_COMPILING = 2
"""Sizes that are tried before anything is learned."""
_SENTENCE = (
    "A fast model that reads a thousand documents, says which of them answers the question, and "
    "why it stands above the others, is worth more than a large one that comes to ten of them. "
)


class Stage(ABC):
    """One model, and how it comes by the words of documents."""

    calibration: Calibration | None = None
    """Of its scores to probabilities of relevance."""
    mean_size = 1.0
    """Of a document's first passage, as `cost` counts it; and of one that a store lacks."""
    mean_live_size = 1.0
    mixes = False
    """Whether the first stage's scores are of a kind that the model may mix into its own."""

    def __init__(self, reranker: Reranker, cost: CostModel, at_once: float) -> None:
        """`cost` is that of scoring, by the number of words; `at_once` the most words that are
        scored as one piece when there is no budget to cut it shorter."""
        self.reranker = reranker
        self.cost = cost
        self.query_cost = reranker.query_cost
        self.at_once = at_once
        self.calibration = reranker.usage.calibration
        self.passages = reranker.usage.passages

    @abstractmethod
    def prepare_candidates(
        self, query: TokenEmbeddings, docs: NDArray[np.int64], first_stage: NDArray[np.float32]
    ) -> DocCandidates | PartlyStored:
        """Documents by their numbers, with the first stage's scores."""

    def score(
        self, candidates: DocCandidates | PartlyStored, scheduler: Scheduler, due: Deadline
    ) -> ScoredDocs:
        """As many as the time allows, the first ones first. What is stored costs little and comes
        before what has to be encoded, in a part of the time, and in the rest if that has any left;
        further passages of long documents come last.
        """
        own = scheduler, self.cost, self.at_once, self.passages
        if not isinstance(candidates, PartlyStored):
            scoring = Scoring(candidates, *own)
            scoring.first(due)
            scoring.further(due)
            return scoring.placed(live=isinstance(candidates, TextCandidates))
        stored = Scoring(candidates.stored, *own)
        live = Scoring(candidates.live, scheduler, self.reranker.cost, WORDS_AT_ONCE, self.passages)
        stored.first(scheduler.stored_deadline(due))
        live.first(due)
        stored.first(due)
        stored.further(due)
        live.further(due)
        return joined(
            stored.placed(live=False).at(candidates.which_stored),
            live.placed(live=True).at(candidates.which_live),
        )

    def score_docs(
        self,
        query: TokenEmbeddings,
        docs: NDArray[np.int64],
        first_stage: NDArray[np.float32],
        due: Deadline = NEVER,
    ) -> ScoredDocs:
        """All of these documents, however long it takes; or what can be read of them in time."""
        return self.score(self.prepare_candidates(query, docs, first_stage), Scheduler(), due)

    def probabilities(
        self, values: NDArray[np.float32], first_stage: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Of being relevant, for documents with these scores; nan where the model does not know.
        What the first stage adds to a score depends on the collection, and is left out."""
        if self.calibration is None:
            return np.full(len(values), np.nan)
        given = first_stage if self.mixes else None
        return self.calibration.probabilities(
            values - self.reranker.first_stage_shares(len(values), given)
        )

    def least_ms(self) -> float:
        """What it is likely to take to score a single document."""
        return self.query_cost.predict(1) + self.cost.predict(1)

    def expected_ms(self, docs: int) -> float:
        """What it is likely to take to score the first passages of so many documents, the query
        included."""
        return self.query_cost.predict(docs) + self.cost.stretch * self._scoring_ms(docs)

    def _scoring_ms(self, docs: int) -> float:
        return self.cost.predict(docs * self.mean_size)

    def learn_depth(self, wanted: int, reached: int, took: float) -> None:
        """So many milliseconds sufficed for so many documents of those that were wanted."""
        predicted = self._scoring_ms(max(1, reached))
        self.cost.learn_stretch(predicted, took if reached < wanted else predicted)

    def warm_up(self, query: str, docs: NDArray[np.int64], clock: Clock) -> None:
        """Scores a few documents, so that all is compiled and the first query is predicted as well
        as later ones. Nothing is learned from the first round, which compiles."""
        for learns in (False, True):
            for size in CALIBRATION_DOCS if learns else CALIBRATION_DOCS[:_COMPILING]:
                some = docs[:size]
                began = clock()
                words = self.reranker.encode_query(query)
                candidates = self.prepare_candidates(words, some, np.zeros(len(some), np.float32))
                ready = clock()
                if learns:
                    self.query_cost.learn(len(some), ready - began)
                if isinstance(candidates, PartlyStored):
                    live = _try(candidates.live, self.reranker.cost if learns else None, clock)
                    self.mean_live_size = live or self.mean_live_size
                    candidates = candidates.stored
                mean = _try(candidates, self.cost if learns else None, clock)
                self.mean_size = mean or self.mean_size
                if clock() - ready > _LONG_ENOUGH_MS:
                    break


def joined(one: ScoredDocs, other: ScoredDocs) -> ScoredDocs:
    """Two parts of the same candidates as one, in their order."""
    order = np.argsort(np.concatenate([one.which, other.which]))

    def both(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([a, b])[order]

    return ScoredDocs(
        both(one.which, other.which),
        both(one.values, other.values),
        one.live + other.live,
        both(one.numbers, other.numbers),
        both(one.spans, other.spans),
        both(one.truncated, other.truncated),
        both(one.further, other.further),
    )


def _try(candidates: DocCandidates, cost: CostModel | None, clock: Clock) -> float:
    """Scores first passages; the mean of their sizes, 0 where there are none."""
    first = candidates.first
    count = len(first.sizes)
    if not count:
        return 0.0
    began = clock()
    first.scores(0, count)
    if cost is not None:
        cost.learn(float(first.sizes.sum()), clock() - began)
    return float(first.sizes.mean())


class TextsStage(Stage):
    """A model on texts, which are encoded live; a text's number is its place in the list."""

    def __init__(self, reranker: Reranker, docs: Sequence[Doc]) -> None:
        super().__init__(reranker, reranker.cost, TOKENS_AT_ONCE)
        self._docs = docs
        self.mean_size = float(first_sizes(reranker, text_sizes(docs)).mean()) if docs else 1.0
        warn_if_texts_are_foreign(reranker, docs)

    def prepare_candidates(
        self, query: TokenEmbeddings, docs: NDArray[np.int64], first_stage: NDArray[np.float32]
    ) -> TextCandidates:
        """Texts by their places."""
        given = [self._docs[place] for place in docs.tolist()]
        return TextCandidates.of_texts(self.reranker, query, given)


def warm_up(reranker: Reranker, clock: Clock = now) -> None:
    """All that the first texts would otherwise wait for, once for each model: code is compiled,
    threads begin, and what a text costs is learned."""
    with reranker.warming:
        if not reranker.is_warm:
            count = max(CALIBRATION_DOCS)
            texts = [Doc("", _SENTENCE * (1 + place % 5)) for place in range(count)]
            TextsStage(reranker, texts).warm_up(_SENTENCE[:60], np.arange(count), clock)
            reranker.is_warm = True


class IndexStage(Stage):
    """A model on the documents of an index: their stored words, or their texts, encoded live."""

    def __init__(
        self,
        reranker: Reranker,
        snapshot: Snapshot,
        store: Store | None,
        *,
        found: bool,
        mixes: bool = True,
    ) -> None:
        """`found` says whether the store is the model's own in the index, or was given."""
        if store is None:
            super().__init__(reranker, reranker.cost, WORDS_AT_ONCE)
        else:
            super().__init__(reranker, CostModel(), _STORED_AT_ONCE)
        self.store = store
        self.snapshot = snapshot
        self.found = found
        self.mixes = mixes
        self.num_missing = 0 if store is None else store.count_missing(snapshot)
        """Documents that are not in the store, and are encoded when they are found."""
        if store is not None and not found and self.num_missing == snapshot.collection.docs:
            store.require(snapshot)  # it was given, and is another index's
        self.left_out = _left_out(reranker, store)
        """Words that the store does without, and what is encoded live beside it too."""
        self._fused = None if store is None else fused_pooling(reranker.fast_model, store)

    def prepare_candidates(
        self, query: TokenEmbeddings, docs: NDArray[np.int64], first_stage: NDArray[np.float32]
    ) -> DocCandidates | PartlyStored:
        """Documents by their numbers in the index."""
        if not self.mixes:
            first_stage = np.zeros_like(first_stage)
        if self.store is None:
            return self._texts(query, docs, first_stage)
        if not self.num_missing:
            return self._stored(query, docs, first_stage, self.store)
        is_stored = np.zeros(len(docs), np.bool_)
        for located in self.store.locate(self.snapshot, docs, partial=True):
            is_stored[located.which] = True
        if is_stored.all():
            return self._stored(query, docs, first_stage, self.store)
        return PartlyStored(
            self._stored(query, docs[is_stored], first_stage[is_stored], self.store),
            self._texts(query, docs[~is_stored], first_stage[~is_stored]),
            is_stored,
        )

    def _texts(
        self, query: TokenEmbeddings, docs: NDArray[np.int64], first_stage: NDArray[np.float32]
    ) -> TextCandidates:
        return TextCandidates.of_index(
            self.reranker, query, self.snapshot, docs, first_stage, self.left_out
        )

    def _stored(
        self,
        query: TokenEmbeddings,
        docs: NDArray[np.int64],
        first_stage: NDArray[np.float32],
        store: Store,
    ) -> StoredCandidates:
        return StoredCandidates(
            self.reranker, self._fused, store, query, self.snapshot, docs, first_stage
        )

    def words(self, doc_id: str, passage: int = 0) -> TokenEmbeddings | None:
        """The words of a document's passage as they are ranked; None where it is encoded live."""
        if self.store is None:
            return None
        number = np.array([self.snapshot.find(doc_id)])
        for located in self.store.locate(self.snapshot, number, partial=True):
            rows = located.part.passage_rows(located.first + passage)
            return self.store.words(located.part, *rows)
        return None

    def _scoring_ms(self, docs: int) -> float:
        """Of stored documents, and of those that the store lacks, in their proportion."""
        stored = super()._scoring_ms(docs)
        if not self.num_missing:
            return stored
        lacks = docs * self.num_missing / max(1, self.snapshot.collection.docs)
        return stored + self.reranker.cost.predict(lacks * self.mean_live_size)

    def calibrate(self, clock: Clock) -> None:
        """Practises on documents of the index, and on texts where there may be some to encode."""
        docs = sample_docs(self.snapshot, max(CALIBRATION_DOCS))
        if not len(docs):
            return
        query = " ".join(self.snapshot.doc(int(docs[0])).text.split()[:8])
        self.warm_up(query, docs, clock)
        if self.num_missing:
            warm_up(self.reranker, clock)

    def follow(self, index: Index, *, verify: bool) -> "IndexStage":
        """The same on a changed index, with a store that follows it and all that was learned."""
        store = self.store
        if self.found:
            store = Store.find(index, self.reranker.model, verify=verify)
        elif store is not None:
            store = Store.open(store.path, self.reranker.model, verify=verify)
        fresh = IndexStage(self.reranker, index.snapshot, store, found=self.found, mixes=self.mixes)
        if (self.store is None) == (store is None):
            fresh.cost = self.cost
        return fresh


def _left_out(reranker: Reranker, store: Store | None) -> TokenFilter | None:
    if store is None or not store.layout.left_out:
        return None
    return TokenFilter(store.layout.left_out, reranker.model, reranker.saved.vocabulary)


def sample_docs(snapshot: Snapshot, count: int) -> NDArray[np.int64]:
    """Spread over the whole index: their lengths are like those of all."""
    total = snapshot.bases[-1]
    return np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64))
