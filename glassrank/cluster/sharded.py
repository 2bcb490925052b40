"""An index whose shards are searched elsewhere, and the pipeline that has them re-rank.

A query takes the statistics of the whole collection along, so that scores are what one machine
computes. The best of all shards are the candidates, and each shard scores its own of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.cluster.mirror import Mirror, parse_url
from glassrank.cluster.shard import Masks, Shards, View, split_index
from glassrank.deadline import NEVER, Clock, Deadline
from glassrank.embeddings import Store
from glassrank.index import Index
from glassrank.index.scoring import BM25, QL
from glassrank.index.search import Method, TopK, WeightedQuery, merge_top_k, run_method
from glassrank.index.segment import SegmentRecord
from glassrank.index.snapshot import Snapshot
from glassrank.models.model import Model, TokenEmbeddings
from glassrank.rerank.candidates import ScoredDocs, merge_scored
from glassrank.rerank.cascade import Cascade
from glassrank.rerank.pipeline import Pipeline
from glassrank.rerank.reranker import Reranker
from glassrank.rerank.scheduler import CostModel, Scheduler, scoring_reserve_ms
from glassrank.rerank.stages import CALIBRATION_DOCS, Candidates, Grow, IndexStage, sample_docs
from glassrank.types import Ranking

_QUERIES_AT_ONCE = 256
_FIRST_STAGE_SHARE = 0.5
"""The share of a query's time in which shards must have found their candidates, so that there is
time to re-rank those of the others."""

_VECTORS_SHARE = 0.8
"""Of what is left after scoring, in which shards must have sent the vectors of the best."""

_MAX_NETWORK_SHARE = 0.5
"""Of the time for scoring, that is kept for requests and answers to travel."""


class ShardedIndex(Index):
    """An index that others search; statistics, ids and texts are read from its folder here."""

    def __init__(
        self, path: str | Path, shards: Shards, *, checked: Sequence[SegmentRecord] | None = None
    ) -> None:
        """A `path` of another kind than this machine's is copied as far as it is needed."""
        url = parse_url(path)
        self._mirror = None if url is None else Mirror(url)
        local = path if self._mirror is None else self._mirror.whole()
        super().__init__(local, verify=False, checked=checked)
        self.shards = shards
        self._views = self.snapshot, self._split()

    @property
    def is_copy(self) -> bool:
        """Whether it is elsewhere, and stands here without the stores."""
        return self._mirror is not None

    def find_store(self, model: Model, *, verify: bool) -> Store | None:
        """As `Store.find`; without its parts where the index is a copy, which has none."""
        names = () if not self.is_copy else [record.name for record in self.snapshot.records]
        return Store.find(self, model, verify=verify, without=names)

    @property
    def views(self) -> tuple[View, ...]:
        """Its shards, as the index is now."""
        if self._views[0] is not self.snapshot:  # it was changed, or has moved on
            self._views = self.snapshot, self._split()
        return self._views[1]

    def _split(self) -> tuple[View, ...]:
        return split_index(self.path, self.snapshot, len(self.shards), self._mirror)

    def refresh(self, *, verify: bool = False) -> bool:
        """As `Index.refresh`; from elsewhere, what is new is copied first."""
        if self._mirror is not None:
            self._mirror.whole()
        return super().refresh(verify=verify)

    def prepare(self, *, calibrate: bool = False) -> None:
        """Has all shards opened."""
        self.shards.prepare(self.views, calibrate=calibrate)

    def _search(
        self,
        snapshot: Snapshot,
        queries: Sequence[Sequence[str]],
        k: int,
        method: Method,
        threads: int | None,
        deadline: Deadline,
    ) -> list[TopK]:
        asked = _ShardSearch(self, deadline.share(_FIRST_STAGE_SHARE))
        tops = run_method(snapshot, queries, k, method, threads, deadline, asked.search)
        missing = tuple(sorted(asked.missing))
        return [top._replace(missing=missing) for top in tops]


class _ShardSearch:
    """One search, in as many rounds as its method takes, and who did not answer in any of them."""

    def __init__(self, index: ShardedIndex, deadline: Deadline) -> None:
        self._shards, self._views = index.shards, index.views
        self._all = index.snapshot
        self._deadline = deadline
        self.missing: set[str] = set()

    def search(
        self,
        snapshot: Snapshot,
        queries: Sequence[WeightedQuery],
        k: int,
        method: BM25 | QL,
        threads: int | None = None,
    ) -> list[TopK]:
        """As `index.search.search` finds it in one process."""
        tops = []
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            some = [dict(query) for query in queries[first : first + _QUERIES_AT_ONCE]]
            terms = {
                term: statistics
                for query in some
                for term in query
                if (statistics := snapshot.term(term).statistics).docs
            }
            asked = some, k, method, snapshot.collection, terms
            answers = self._call("search", snapshot, *asked)
            tops += [
                merge_top_k(snapshot, [answer[place] for answer in answers], k)
                for place in range(len(some))
            ]
        return tops

    def nearest(self, snapshot: Snapshot, model: int, query: TokenEmbeddings, k: int) -> TopK:
        """By vectors, of the model of this number."""
        top = merge_top_k(snapshot, self._call("nearest", snapshot, model, query, k), k)
        return top._replace(missing=tuple(sorted(self.missing)))

    def _call(self, method: str, snapshot: Snapshot, *asked: Any) -> list[Any]:
        """What the shards answer, in their order; notes who did not."""
        masks = self._masks(snapshot)
        requests = {
            number: (view, *asked, masks[number]) for number, view in enumerate(self._views)
        }
        answers = self._shards.call(method, requests, self._deadline)
        self.missing.update(
            view.name for number, view in enumerate(self._views) if number not in answers
        )
        return [answers[number] for number in sorted(answers)]

    def _masks(self, snapshot: Snapshot) -> list[Masks | None]:
        if snapshot.live is self._all.live:  # nothing is filtered
            return [None] * len(self._views)
        packed = [(np.packbits(live), len(live)) for live in snapshot.live]
        ends = np.cumsum([len(view.manifest.segments) for view in self._views]).tolist()
        return [packed[first:last] for first, last in zip([0, *ends], ends, strict=False)]


class ShardedStage(IndexStage):
    """A model that is where the documents are; queries are encoded once, here."""

    def __init__(
        self,
        reranker: Reranker,
        index: ShardedIndex,
        store: Store | None,
        number: int,
        regularization: float,
    ) -> None:
        """`number` is the model's among those of the shards."""
        super().__init__(
            *(reranker, index.snapshot, store), is_own_store=True, regularization=regularization
        )
        self.num_missing *= not index.is_copy  # shards know what they lack
        self._index = index
        self._number = number
        self._network_cost = CostModel()  # of requests and answers, by their number
        self.cost = CostModel()  # of what shards do, by documents

    def prepare_candidates(self, asked: Candidates) -> Any:
        """What shards will be sent."""
        return asked

    def score(
        self,
        candidates: Any,
        scheduler: Scheduler,
        deadline: Deadline,
        abort_at: Deadline = NEVER,
        grow: Grow | None = None,
    ) -> ScoredDocs:
        """Each shard scores its own, by the deadline less the time for the way there and back. Each
        round is a request."""
        scored = self._ask(candidates, scheduler, deadline)
        asked = len(candidates.docs)
        while grow is not None and len(scored.places) == asked:
            more = grow(scored)
            if more is None:
                break
            fresh = self._ask(more, scheduler, deadline)
            missing = tuple(sorted({*scored.missing, *fresh.missing}))
            scored = merge_scored([scored, fresh], missing)
            asked += len(more.docs)
        return scored

    def _divide(self, docs: NDArray[np.int64]) -> Iterator[tuple[int, View, NDArray[np.int64]]]:
        """Shards that have some of these documents, by number, and the places of theirs."""
        for number, view in enumerate(self._index.views):
            mine = np.flatnonzero((docs >= view.base) & (docs < view.base + view.docs))
            if len(mine):
                yield number, view, mine

    def _ask(self, candidates: Any, scheduler: Scheduler, deadline: Deadline) -> ScoredDocs:
        query, docs, first_stage, at = candidates
        at = np.arange(len(docs)) if at is None else at
        left = deadline.remaining()
        way = min(
            scoring_reserve_ms(left) + self._network_cost.predict(1), _MAX_NETWORK_SHARE * left
        )
        within = left - way if left < float("inf") else None
        requests, places = {}, {}
        for number, view, mine in self._divide(docs):
            places[number] = mine
            asked = (self._number, query, docs[mine], first_stage[mine], within)
            requests[number] = (view, *asked)
        began = scheduler.clock()
        answers = self._index.shards.call("score", requests, deadline)
        if answers:
            longest = max(answer.took for answer in answers.values())
            self._network_cost.learn(1, max(0.0, scheduler.clock() - began - longest))
        elif requests:  # longer than was thought
            self._network_cost.learn(1, way + scoring_reserve_ms(left))
        missing = tuple(
            self._index.views[number].name for number in requests if number not in answers
        )
        parts = [_NOTHING]
        for number in sorted(answers):
            scored = answers[number].scored
            parts.append(scored._replace(places=at[places[number][scored.places]]))
        return merge_scored(parts, missing)

    def nearest(
        self, query: TokenEmbeddings, k: int, snapshot: Snapshot, deadline: Deadline = NEVER
    ) -> TopK:
        """What all shards find, joined."""
        search = _ShardSearch(self._index, deadline.share(_FIRST_STAGE_SHARE))
        return search.nearest(snapshot, self._number, query, k)

    def read_doc_vectors(
        self, docs: NDArray[np.int64], deadline: Deadline = NEVER
    ) -> NDArray[np.float32]:
        """Each shard those of its own."""
        assert self.store is not None
        vectors = np.zeros((len(docs), self.store.layout.width), np.float32)
        requests, places = {}, {}
        for number, view, mine in self._divide(docs):
            places[number], requests[number] = mine, (view, self._number, docs[mine])
        within = deadline.share(_VECTORS_SHARE)
        for number, answer in self._index.shards.call("doc_vectors", requests, within).items():
            vectors[places[number]] = answer
        return vectors

    def calibrate(self, clock: Clock) -> None:
        """Has all shards do so; then asks them as a query would."""
        self._index.prepare(calibrate=True)
        docs = sample_docs(self.snapshot, max(CALIBRATION_DOCS))
        if not len(docs):
            return
        text = " ".join(self.snapshot.doc(int(docs[0])).text.split()[:8])
        for learns in (False, True):
            for size in CALIBRATION_DOCS:
                began = clock()
                query = self.reranker.encode_query(text)
                encoded = clock()
                self.score_docs(query, docs[:size], np.zeros(len(docs[:size]), np.float32))
                if learns:
                    self.query_cost.learn(1, encoded - began)
                    self.cost.learn(size, clock() - encoded)

    def follow(self, index: Index, *, verify: bool) -> "ShardedStage":
        """The same on a changed index."""
        assert isinstance(index, ShardedIndex)
        store = index.find_store(self.reranker.model, verify=verify)
        fresh = ShardedStage(self.reranker, index, store, self._number, self.regularization)
        fresh._network_cost, fresh.cost = self._network_cost, self.cost
        return fresh


_NONE, _NO_SCORES = np.empty(0, np.int64), np.empty(0, np.float32)
_NO_SPANS, _NOT_CUT = np.empty((0, 2), np.int64), np.empty(0, np.bool_)
_NOTHING = ScoredDocs(_NONE, _NO_SCORES, _NONE, _NO_SPANS, _NOT_CUT, _NO_SCORES)


class ShardedPipeline(Pipeline):
    """As `Pipeline`, over shards."""

    index: ShardedIndex

    def __init__(
        self,
        index: ShardedIndex,
        models: Reranker | Sequence[Reranker] = (),
        *,
        numbers: Sequence[int] | None = None,
        **settings: Any,
    ) -> None:
        """`numbers` says which of the shards' models these are: all of them, in the same order,
        unless it is given. Settings are those of `Pipeline`."""
        self._numbers = numbers
        super().__init__(index, models, **{**settings, "verify": False})
        if not self.stages:
            self.index.prepare()

    def _find_store(self, reranker: Reranker, *, verify: bool) -> Store | None:
        return self.index.find_store(reranker.model, verify=verify)

    def _index_stage(self, number: int, reranker: Reranker, **settings: Any) -> ShardedStage:
        if self._numbers is not None:
            number = self._numbers[number]
        store, regularization = settings["store"], settings["regularization"]
        return ShardedStage(reranker, self.index, store, number, regularization)

    def _ranking(self, query: str, cascade: Cascade, k: int, hop: str) -> Ranking:
        ranking = super()._ranking(query, cascade, k, hop)
        return replace(ranking, shards=len(self.index.views))
