"""The whole query within one budget: first stage, query encoding, scoring, sorting."""

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Clock, Deadline, now
from glassrank.errors import InputError
from glassrank.models import Words
from glassrank.rank.budget import score_in_time
from glassrank.rank.candidates import Candidates, StoredCandidates, TextCandidates
from glassrank.rank.cost import CostModel
from glassrank.rank.fused import FusedPooling, fused_pooling
from glassrank.rank.fused_gpu import OnGPU
from glassrank.rank.live import Reranker, best_first
from glassrank.retrieve import Index
from glassrank.retrieve.methods import Method
from glassrank.retrieve.search import TopK
from glassrank.retrieve.snapshot import Snapshot
from glassrank.store import Store
from glassrank.types import Hit, Ranking

_WORDS_AT_ONCE = {"live": 16_384.0, "stored": 1_048_576.0}
"""The most that is scored as one piece when there is no budget to cut it shorter."""
_SPARE, _MOST_SPARE_MS = 0.08, 5.0
"""The share of the time left for scoring that is kept for what no prediction knows of."""
_CALIBRATION_DOCS = (2, 8, 32, 64)


@dataclass(frozen=True)
class _State:
    """What a query reads. It never changes: a query that is running ends on what it began with."""

    index: Index
    store: Store | None
    fused: FusedPooling | OnGPU | None


class Pipeline:
    """
    search = Pipeline(index, Reranker.load(), budget_ms=50)
    ranking = search("how do I read a csv file?", k=10)

    With a store, the documents' words are read from it; without, texts are encoded live, within the
    same budget. What the time does not allow keeps the first stage's order below what was
    re-ranked.
    """

    def __init__(
        self,
        index: Index,
        reranker: Reranker,
        *,
        store: Store | None = None,
        budget_ms: float | None = None,
        method: str | Method = "bm25",
        candidates: int | None = None,
        clock: Clock = now,
        calibrate: bool = True,
    ) -> None:
        _check_budget(budget_ms)
        self.reranker = reranker
        self.budget_ms = budget_ms
        self.method = method
        self.candidates = candidates or reranker.usage.depth or 1000
        self._clock = clock
        self._state = self._of(index.pinned(), store)
        self.scoring_cost = CostModel() if store is not None else reranker.cost
        self._closing_cost = CostModel()
        self._lock = threading.Lock()
        if store is not None:
            store.require(index.snapshot)
        if calibrate:
            self.calibrate()

    @classmethod
    def open(
        cls,
        index: str | Path,
        model: str | Path = "default",
        *,
        budget_ms: float | None = None,
        method: str | Method = "bm25",
        candidates: int | None = None,
        device: str = "cpu",
        exact: bool = False,
    ) -> "Pipeline":
        """From folders; the model's document store is used if the index has one. `exact` as in
        `Reranker`."""
        opened, reranker = Index(index), Reranker.load(model, device, exact=exact)
        store = Store.find(opened, reranker.model)
        return cls(
            opened,
            reranker,
            store=store,
            budget_ms=budget_ms,
            method=method,
            candidates=candidates,
        )

    @property
    def index(self) -> Index:
        """As it was when the pipeline was made, or refreshed."""
        return self._state.index

    @property
    def store(self) -> Store | None:
        return self._state.store

    def _of(self, index: Index, store: Store | None) -> _State:
        fused = None if store is None else fused_pooling(self.reranker.ranks, store)
        return _State(index, store, fused)

    def __call__(
        self,
        query: str,
        k: int = 10,
        *,
        budget_ms: float | None = None,
        method: str | Method | None = None,
    ) -> Ranking:
        """The best k. `budget_ms` counts from now, and from the call on covers everything."""
        _check_budget(budget_ms)
        deadline = Deadline.after(budget_ms or self.budget_ms, self._clock)
        began = self._clock()
        state, depth = self._state, max(k, self.candidates)
        first = state.index.top_k([query], depth, method or self.method, deadline=deadline)[0]
        found = self._clock()
        return self._rerank(query, state, first, k, deadline, {"first_stage": found - began})

    def rerank(
        self,
        query: str,
        numbers: NDArray[np.int64],
        scores: NDArray[np.floating],
        *,
        budget_ms: float | None = None,
    ) -> Ranking:
        """Candidates that are there already, by their numbers in the index, best first."""
        _check_budget(budget_ms)
        deadline = Deadline.after(budget_ms or self.budget_ms, self._clock)
        first = TopK(numbers, scores.astype(np.float32))
        return self._rerank(query, self._state, first, len(numbers), deadline, {})

    def _rerank(
        self,
        query: str,
        state: _State,
        first: TopK,
        k: int,
        deadline: Deadline,
        timing: dict[str, float],
    ) -> Ranking:
        began = self._clock()
        words = self.reranker.encode_query(query)
        depth = min(self.candidates, len(first.docs))
        candidates = self._ready(words, state, TopK(first.docs[:depth], first.scores[:depth]))
        encoded = self._clock()
        reserve = self._closing_cost.predict(len(first.docs))
        reserve += min(_SPARE * deadline.left(), _MOST_SPARE_MS)
        at_once = _WORDS_AT_ONCE["live" if state.store is None else "stored"]
        scored = score_in_time(
            candidates.scores,
            candidates.sizes,
            self.scoring_cost,
            deadline.earlier(reserve),
            at_once,
        )
        done = self._clock()
        hits = _hits(state.index.snapshot, first, scored.values, k)
        ended = self._clock()
        self._closing_cost.learn(len(first.docs), ended - done)
        timing |= {"query": encoded - began, "scoring": done - encoded, "sorting": ended - done}
        timing["total"] = sum(timing.values())
        return Ranking(query, hits, scored.depth, timing, depth)

    def stored_words(self, doc_id: str) -> Words | None:
        """A document's words as they are ranked; None where it is encoded live."""
        state = self._state
        snapshot, store = state.index.snapshot, state.store
        if store is None:
            return None
        number = snapshot.find(doc_id)
        (found,) = store.locate(snapshot, np.array([number]))
        return store.words(found.part, found.starts, found.lengths)

    def _ready(self, query: Words, state: _State, first: TopK) -> Candidates:
        reranker, snapshot = self.reranker, state.index.snapshot
        if state.store is None:
            return TextCandidates.of_index(reranker, query, snapshot, first.docs, first.scores)
        return StoredCandidates(
            reranker, state.fused, state.store, query, snapshot, first.docs, first.scores
        )

    def calibrate(self) -> None:
        """Scores a few documents, so that the first query is predicted as well as later ones."""
        state = self._state
        snapshot = state.index.snapshot
        numbers = _some_documents(snapshot, max(_CALIBRATION_DOCS))
        if not len(numbers):
            return
        query = " ".join(snapshot.doc(int(numbers[0])).text.split()[:8])
        words = self.reranker.encode_query(query)
        for warm in (False, True):
            for size in _CALIBRATION_DOCS:
                part = numbers[:size]
                first = TopK(part, np.zeros(len(part), np.float32))
                ready = self._ready(words, state, first)
                began = self._clock()
                ready.scores(0, len(part))
                if warm:
                    self.scoring_cost.learn(float(ready.sizes.sum()), self._clock() - began)
                    self._close_once(snapshot, first)

    def _close_once(self, snapshot: Snapshot, first: TopK) -> None:
        began = self._clock()
        _hits(snapshot, first, first.scores, 10)
        self._closing_cost.learn(len(first.docs), self._clock() - began)

    def refresh(self) -> bool:
        """Takes up a changed index, and a store that follows it; True if anything is new.

        Queries that are running end on what they began with. An index whose new documents are not
        in the store yet is not taken up.
        """
        with self._lock:
            store = self.store
            fresh = self.index.pinned()
            if not fresh.refresh():
                return False
            if store is not None:
                store = Store.open(store.path, self.reranker.model, fresh.snapshot, verify=False)
            self._state = self._of(fresh, store)  # all at once
            return True


def _check_budget(budget_ms: float | None) -> None:
    if budget_ms is not None and not budget_ms > 0:
        raise InputError(f"a budget must be more than 0 milliseconds, not {budget_ms}")


def _hits(snapshot: Snapshot, first: TopK, scores: NDArray[np.float32], k: int) -> tuple[Hit, ...]:
    places, values = best_first(scores, len(first.docs))
    return tuple(
        Hit(
            rank,
            snapshot.doc_id(int(first.docs[place])),
            value,
            place + 1,
            float(first.scores[place]),
        )
        for rank, (place, value) in enumerate(
            zip(places[:k].tolist(), values[:k].tolist(), strict=True), 1
        )
    )


def _some_documents(snapshot: Snapshot, count: int) -> NDArray[np.int64]:
    """Spread over the whole index: their lengths are like those of all."""
    total = snapshot.bases[-1]
    return np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64))
