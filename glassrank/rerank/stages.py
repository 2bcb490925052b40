"""A stage: one model with the documents that it ranks, and what its work costs here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isinf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Clock, Deadline, now
from glassrank.embeddings import Store
from glassrank.embeddings.doc_vectors import get_query_vector
from glassrank.index import Index
from glassrank.index.search import TopK
from glassrank.index.snapshot import Snapshot
from glassrank.models.model import Floats, Ints, TokenEmbeddings
from glassrank.models.text_batches import TokenFilter
from glassrank.rerank.candidates import CandidateGroup, ScoredDocs, merge_scored
from glassrank.rerank.inputs import warn_if_texts_are_foreign
from glassrank.rerank.regularization import pick_best, regularize
from glassrank.rerank.reranker import TOKENS_AT_ONCE, Reranker
from glassrank.rerank.scheduler import CostModel, Scheduler
from glassrank.rerank.stored_scorer import StoredScorer, choose_fused_scorer
from glassrank.rerank.text_scorer import (
    TextScorer,
    first_passage_sizes,
    index_sizes,
    text_sizes,
)
from glassrank.types import Doc

CALIBRATION_DOCS = (2, 8, 32, 64)
_UNTIMED_SIZES = 2
"""Calibration sizes that are scored once before any is timed: these compile."""
_SLOW_MS = 100.0
"""A model that takes so long for a few documents needs no larger calibration size."""
_SENTENCE = (
    "A fast model that reads a thousand documents, says which of them answers the question, and "
    "why it stands above the others, is worth more than a large one that comes to ten of them. "
)


Grow = Callable[[ScoredDocs], Any]
"""From what is scored so far to what `prepare_candidates` gives, or None."""


class Candidates(NamedTuple):
    """Documents that a stage is to score for a query."""

    query: TokenEmbeddings
    docs: Ints  # (n,) by their numbers
    first_stage: Floats  # (n,) scores
    places: Ints | None = None  # (n,) among all candidates; these are all, if None


class Stage(ABC):
    """One model, and where it gets the documents' embeddings from."""

    mean_size = 1.0
    """Of a document's first passage, as `cost` counts it."""
    mean_encoded_size = 1.0
    """The same of a document that is missing in the store."""
    interpolates = False
    """Whether the model may add the first stage's scores to its own."""

    def __init__(self, reranker: Reranker, cost: CostModel) -> None:
        """`cost` is that of scoring, by tokens."""
        self.reranker = reranker
        self.cost = cost
        self.query_cost = reranker.query_cost
        self.calibration = reranker.usage.calibration
        """From scores to probabilities of relevance."""

    def cut_to(self, docs: Ints, spans: Ints) -> Ints | None:
        """From now on reads only these passages (n, 2; -1 for the whole text) of documents, the
        best of the model before it, and returns them; None for a stage that reads all."""
        return None

    @abstractmethod
    def prepare_candidates(self, asked: Candidates) -> Any:
        """Candidates as `score` takes them."""

    def score(
        self,
        groups: Sequence[CandidateGroup],
        scheduler: Scheduler,
        deadline: Deadline,
        abort_at: Deadline = NEVER,
        grow: Grow | None = None,
    ) -> ScoredDocs:
        """As many as the time allows, from the first on. Stored documents cost little: they come
        before others, in a part of the time, and again in the rest; further passages of long
        documents come last. Raises a LateError at `abort_at`. Once all are scored, `grow` gives
        the candidates of a further round."""
        groups, fresh = [], list(groups)
        so_far: list[ScoredDocs] = []
        while fresh:
            if len(fresh) > 1:
                fresh[0].score_first(scheduler, scheduler.stored_deadline(deadline), abort_at)
            for group in reversed(fresh):
                group.score_first(scheduler, deadline, abort_at)
            groups += fresh
            if grow is None or not all(group.is_scored for group in fresh):
                break
            if isinf(deadline.at):  # then who is best depends on all passages
                for group in fresh:
                    group.score_further(scheduler, deadline, abort_at)
            so_far = [self._join(fresh, so_far)]
            fresh = grow(*so_far) or []
        for group in groups:
            group.score_further(scheduler, deadline, abort_at)
        return self._join(groups)

    def _join(
        self, groups: Sequence[CandidateGroup], others: Sequence[ScoredDocs] = ()
    ) -> ScoredDocs:
        settings = self.reranker.usage.passages
        scored = [*others, *(group.scored_docs(settings) for group in groups)]
        return scored[0] if len(scored) == 1 else merge_scored(scored)

    def score_docs(
        self,
        query: TokenEmbeddings,
        docs: Ints,
        first_stage: Floats,
        deadline: Deadline = NEVER,
        abort_at: Deadline = NEVER,
    ) -> ScoredDocs:
        """Documents by their numbers, as many as there is time for."""
        groups = self.prepare_candidates(Candidates(query, docs, first_stage))
        return self.score(groups, Scheduler(), deadline, abort_at)

    def probabilities(self, scores: Floats, first_stage: Floats) -> NDArray[np.float64]:
        """Of relevance, without what the first stage adds; nan if not calibrated."""
        if self.calibration is None:
            return np.full(len(scores), np.nan)
        given = first_stage if self.interpolates else None
        return self.calibration.probabilities(
            scores - self.reranker.weigh_first_stage(len(scores), given)
        )

    def regularize(self, docs: Ints, scores: Floats, deadline: Deadline = NEVER) -> Floats:
        """What scores gain or lose by those of documents that are alike."""
        return np.zeros_like(scores)

    def least_ms(self) -> float:
        """Predicted milliseconds for a single document, the query included."""
        return self.query_cost.predict(1) + self.cost.predict(1)

    def expected_ms(self, docs: int) -> float:
        """Expected milliseconds for first passages of so many documents, the query included."""
        return self.query_cost.expect(1) + self.cost.stretch * self.scoring_ms(docs)

    def scoring_ms(self, docs: int) -> float:
        """Predicted milliseconds for first passages of so many documents, without the query."""
        return self.cost.predict(docs * self.mean_size)

    def learn_depth(self, wanted: int, reached: int, took: float) -> None:
        """Of so many documents that were `wanted`, so many were scored in these milliseconds."""
        predicted = self.scoring_ms(max(1, reached))
        self.cost.learn_stretch(predicted, took if reached < wanted else predicted)

    def warm_up(self, query: str, docs: Ints, clock: Clock) -> None:
        """Scores a few documents: code is compiled, and costs are learned in a second round."""
        for learns in (False, True):
            for size in CALIBRATION_DOCS if learns else CALIBRATION_DOCS[:_UNTIMED_SIZES]:
                some = docs[:size]
                began = clock()
                encoded = self.reranker.encode_query(query)
                zeros = np.zeros(len(some), np.float32)
                groups = self.prepare_candidates(Candidates(encoded, some, zeros))
                prepared = clock()
                if learns:
                    self.query_cost.learn(1, prepared - began)
                for number, group in reversed(list(enumerate(groups))):
                    sizes = group.passages.sizes
                    if not len(sizes):
                        continue
                    started = clock()
                    group.scorer.score(group.passages, NEVER)
                    if learns:
                        group.scorer.cost.learn(float(sizes.sum()), clock() - started)
                    setattr(self, _MEAN_SIZES[number], float(sizes.mean()))
                if clock() - prepared > _SLOW_MS:
                    break


_MEAN_SIZES = ("mean_size", "mean_encoded_size")
"""Of the first and the second group of candidates."""


class TextsStage(Stage):
    """A model on a list of texts, encoded on the fly; a text's number is its place in the list."""

    def __init__(
        self, reranker: Reranker, docs: Sequence[Doc], *, reads_best_passages: bool = False
    ) -> None:
        super().__init__(reranker, reranker.cost)
        self._docs = list(docs)
        self._reads_best_passages = reads_best_passages
        if docs:
            self.mean_size = float(first_passage_sizes(reranker, text_sizes(docs)).mean())
        warn_if_texts_are_foreign(reranker, docs)

    def cut_to(self, docs: Ints, spans: Ints) -> Ints | None:
        """None unless it `reads_best_passages`."""
        if not self._reads_best_passages:
            return None
        for place, (start, stop) in zip(docs.tolist(), spans.tolist(), strict=True):
            if stop >= 0:
                doc = self._docs[place]
                self._docs[place] = replace(doc, text=doc.text[start:stop])
        return spans

    def prepare_candidates(self, asked: Candidates) -> list[CandidateGroup]:
        """Texts by their places. The first stage's scores are of another kind than the model's."""
        texts = [self._docs[place] for place in asked.docs.tolist()]
        scorer = TextScorer.of_texts(self.reranker, asked.query, texts, max_chunk=TOKENS_AT_ONCE)
        return [CandidateGroup(scorer, asked.places)]


def warm_up(reranker: Reranker, clock: Clock = now) -> None:
    """Once for each model, what the first query would wait for."""
    with reranker.warming:
        if not reranker.is_warm:
            count = max(CALIBRATION_DOCS)
            texts = [Doc("", _SENTENCE * (1 + place % 5)) for place in range(count)]
            TextsStage(reranker, texts).warm_up(_SENTENCE[:60], np.arange(count), clock)
            reranker.is_warm = True


class IndexStage(Stage):
    """A model on the documents of an index: stored, or encoded on the fly."""

    def __init__(
        self,
        reranker: Reranker,
        snapshot: Snapshot,
        store: Store | None,
        *,
        is_own_store: bool,
        interpolates: bool = True,
        regularization: float = 0.0,
    ) -> None:
        """`is_own_store` says that the store is the model's in the index, and follows it.
        `regularization` is the weight of similar documents, where the store has vectors."""
        super().__init__(reranker, reranker.cost if store is None else CostModel())
        self.store = store
        self.snapshot = snapshot
        self.is_own_store = is_own_store
        self.interpolates = interpolates
        self.regularization = regularization
        self.num_missing = 0 if store is None else store.count_missing(snapshot)
        """Documents that are not in the store: they are encoded on the fly."""
        if store is not None and not is_own_store and self.num_missing == snapshot.collection.docs:
            store.require(snapshot)  # it belongs to another index
        self.left_out: TokenFilter | None = None
        """Tokens that the store leaves out, and what is encoded on the fly beside it, too."""
        if store is not None and store.layout.left_out:
            vocabulary = reranker.saved.vocabulary
            self.left_out = TokenFilter(store.layout.left_out, reranker.model, vocabulary)
        self._fused = None if store is None else choose_fused_scorer(reranker.fast_model, store)

    def prepare_candidates(self, asked: Candidates) -> list[CandidateGroup]:
        """Documents by their numbers in the index."""
        query, docs, first_stage, places = asked
        if not self.interpolates:
            first_stage = np.zeros_like(first_stage)
        if self.store is None:
            scorer = self._text_scorer(query, docs, first_stage, self.cost)
            return [CandidateGroup(scorer, places)]
        places = np.arange(len(docs)) if places is None else places
        is_stored = np.full(len(docs), not self.num_missing)
        if self.num_missing:
            for located in self.store.locate(self.snapshot, docs, partial=True):
                is_stored[located.which] = True
        stored, missing = np.flatnonzero(is_stored), np.flatnonzero(~is_stored)
        stored_scorer = StoredScorer(
            *(self.reranker, self._fused, self.store, self.cost),
            *(query, self.snapshot, docs[stored], first_stage[stored]),
        )
        groups = [CandidateGroup(stored_scorer, places[stored])]
        if len(missing):
            scorer = self._text_scorer(
                query, docs[missing], first_stage[missing], self.reranker.cost
            )
            groups.append(CandidateGroup(scorer, places[missing]))
        return groups

    def _text_scorer(
        self,
        query: TokenEmbeddings,
        docs: Ints,
        first_stage: Floats,
        cost: CostModel,
    ) -> TextScorer:
        snapshot, numbers = self.snapshot, docs.tolist()
        return TextScorer(
            self.reranker,
            query,
            lambda place, characters: snapshot.doc(numbers[place], characters),
            index_sizes(snapshot, numbers),
            first_stage,
            self.left_out,
            cost=cost,
        )

    def read_embeddings(self, doc_id: str, passage: int = 0) -> TokenEmbeddings | None:
        """The stored embeddings of a document's passage; None where it is encoded on the fly."""
        if self.store is None:
            return None
        number = np.array([self.snapshot.find(doc_id)])
        for located in self.store.locate(self.snapshot, number, partial=True):
            rows = located.part.passage_rows(located.first + passage)
            return self.store.read_embeddings(located.part, *rows)
        return None

    def regularize(self, docs: Ints, scores: Floats, deadline: Deadline = NEVER) -> Floats:
        """Of the best documents, by their vectors in the store."""
        added = np.zeros_like(scores)
        if self.is_regularized:
            best = pick_best(scores)
            vectors = self.read_doc_vectors(docs[best], deadline)
            added[best] = regularize(scores[best], vectors, self.regularization)
        return added

    @property
    def is_regularized(self) -> bool:
        """Whether scores are drawn to those of similar documents."""
        return bool(self.regularization) and self.store is not None and self.store.has_doc_vectors

    def read_doc_vectors(self, docs: Ints, deadline: Deadline = NEVER) -> Floats:
        """(n, E) of documents by their numbers; 0 for what is not stored, or comes too late."""
        assert self.store is not None
        return self.store.read_doc_vectors(self.snapshot, docs)

    def nearest(
        self, query: TokenEmbeddings, k: int, snapshot: Snapshot, deadline: Deadline = NEVER
    ) -> TopK:
        """The best k by vectors, among the documents that a snapshot's searches return."""
        assert self.store is not None
        return self.store.nearest(self.snapshot, get_query_vector(query), k, snapshot.live)

    def scoring_ms(self, docs: int) -> float:
        """Of stored documents and of missing ones, in their proportion."""
        stored = super().scoring_ms(docs)
        if not self.num_missing:
            return stored
        missing = docs * self.num_missing / max(1, self.snapshot.collection.docs)
        return stored + self.reranker.cost.predict(missing * self.mean_encoded_size)

    def calibrate(self, clock: Clock) -> None:
        """Warms up on documents of the index, and on texts where some may be encoded."""
        docs = sample_docs(self.snapshot, max(CALIBRATION_DOCS))
        if not len(docs):
            return
        query = " ".join(self.snapshot.doc(int(docs[0])).text.split()[:8])
        self.warm_up(query, docs, clock)
        if self.num_missing:
            warm_up(self.reranker, clock)

    def follow(self, index: Index, *, verify: bool) -> "IndexStage":
        """The same on a changed index, with the store as it is now and all that was learned."""
        store = self.store
        if self.is_own_store:
            store = Store.find(index, self.reranker.model, verify=verify)
        elif store is not None:
            store = Store.open(store.path, self.reranker.model, verify=verify)
        fresh = IndexStage(
            self.reranker,
            index.snapshot,
            store,
            is_own_store=self.is_own_store,
            interpolates=self.interpolates,
            regularization=self.regularization,
        )
        if (self.store is None) == (store is None):
            fresh.cost = self.cost
        return fresh


def sample_docs(snapshot: Snapshot, count: int) -> Ints:
    """Numbers spread over the whole index, so that lengths are like those of all documents."""
    total = snapshot.bases[-1]
    return np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64))
