"""One query within one budget: first stage, query encoding, scoring, sorting."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import use_compiled_code
from glassrank.deadline import NEVER, Clock, Deadline, check_budget, now
from glassrank.embeddings import Store
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.index.filters import FilterSpec
from glassrank.index.first_stage import FirstStage, retrieve
from glassrank.index.methods import method_name
from glassrank.index.search import BY_TERMS, Method, TopK, check_k, check_query
from glassrank.models.io.model_folder import fingerprint
from glassrank.rerank.adaptive import Neighbourhood
from glassrank.rerank.cascade import Cascade, EncodedQuery
from glassrank.rerank.cascade_plan import CascadePlan, plan_depths
from glassrank.rerank.hybrid import (
    DEFAULT_RETRIEVAL,
    Retrieval,
    check_retrieval,
    found_by_names,
    fuse,
)
from glassrank.rerank.inputs import warn_if_index_is_foreign, warn_of_nothing_reached
from glassrank.rerank.regularization import check_weight
from glassrank.rerank.reranker import Reranker
from glassrank.rerank.scheduler import Scheduler
from glassrank.rerank.stages import CALIBRATION_DOCS, IndexStage, sample_docs
from glassrank.tracing import span
from glassrank.types import Hit, Ranking, Run

_CANDIDATES = 1000
_AMPLE_MS = 1e9
_ENOUGH_DOCS = 200
"""Of those that terms and vectors find: more make few rankings better."""
_VECTOR_TRIALS = 3
"""Searches by vectors that calibrate them; costs are nearer to the fastest of them."""


class Pipeline:
    """
    search = Pipeline(index, Reranker.load(), budget_ms=50)
    ranking = search("how do I read a csv file?", k=10)

    Retrieves candidates with the first stage, and re-ranks them with one or more models: the first
    one orders all candidates, each further one the best of them, as many as the time or a plan
    allows. What there is no time for keeps its order, below what was re-ranked. Without a model,
    the first stage's ranking is the final one.

    Documents' embeddings come from the model's store in the index; documents that it lacks are
    encoded on the fly, within the same budget. A pipeline never changes, and threads may share it:
    it stays on the index as it was when it was made.
    """

    def __init__(
        self,
        index: Index,
        models: Reranker | Sequence[Reranker] = (),
        *,
        store: Store | None = None,
        use_store: bool = True,
        budget_ms: float | None = None,
        method: str | Method | None = None,
        first_stage: FirstStage | str | None = None,
        adaptive: bool | None = None,
        regularization: float | None = None,
        candidates: int | None = None,
        plan: CascadePlan | None = None,
        clock: Clock = now,
        calibrate: bool = True,
        verify: bool = True,
    ) -> None:
        """`store` is the index's own store of each model, if there is one, unless it is given;
        without `use_store` all documents are encoded on the fly. `verify` reads every byte of a
        store once. `method` is the first stage that the first model was trained on, and
        `candidates` the depth at which it was best on dev queries, unless they are given. `plan`
        says how deep each of several models goes.

        `first_stage` is `bm25` (or another `method`), `dense`, which finds documents by the vectors
        of a store, or `hybrid`, which fuses both: the default where a store has such vectors. Or it
        is an object that retrieves candidates in place of the index, which has their texts and
        stores; its ids are the index's. A model then does not interpolate with first-stage scores:
        it was trained on other ones. If `adaptive`, the best candidates bring in their neighbours:
        the default where vectors find documents and the store has a graph. Where a store has
        vectors, similar documents draw each other's scores together: `regularization` is how far,
        from 0 to 1."""
        check_budget(budget_ms)
        regularization = check_weight(regularization)
        rerankers = [models] if isinstance(models, Reranker) else list(models)
        warn_if_index_is_foreign(rerankers, index.analyzer.languages)
        self.index = index.pin()
        self.first_stage = None if isinstance(first_stage, str) else first_stage
        self.budget_ms = budget_ms
        usage = rerankers[0].usage if rerankers else None
        method = method or (usage.first_stage if usage else "bm25")
        self.method = method if isinstance(method, str) else method_name(method)
        self._found_by = found_by_names(self.method)
        self.candidates = (candidates or usage.depth or _CANDIDATES) if usage else 0
        depths = (reranker.usage.depth or self.candidates for reranker in rerankers[1:])
        further = [min(self.candidates, depth) for depth in depths]
        self._depths = [self.candidates, *further] if rerankers else []
        self.plan = plan
        self.scheduler = Scheduler(clock)
        finds_store, given = use_store and store is None, store if use_store else None
        self.stages = tuple(
            self._index_stage(
                number,
                reranker,
                store=self._find_store(reranker, verify=verify) if finds_store else given,
                is_own_store=finds_store,
                interpolates=self.first_stage is None,
                regularization=regularization,
            )
            for number, reranker in enumerate(rerankers)
        )
        self._asked = check_retrieval(first_stage) if isinstance(first_stage, str) else None
        if self._asked not in (None, "bm25") and self._dense_stage() is None:
            if not rerankers:
                raise InputError(
                    f"first stage {self._asked!r} needs a model, whose store has the vectors; "
                    "name one, such as default"
                )
            raise InputError(
                f"no store of {index.path} has vectors to find documents by; make them with: "
                f"glassrank encode {index.path} --model MODEL --graph"
            )
        self._adaptive = adaptive
        if plan is not None:
            _check_plan(plan, rerankers)
        if calibrate:
            self.calibrate()

    def _find_store(self, reranker: Reranker, *, verify: bool) -> Store | None:
        return Store.find(self.index, reranker.model, verify=verify)

    def _index_stage(self, number: int, reranker: Reranker, **settings: Any) -> IndexStage:
        return IndexStage(reranker, self.index.snapshot, **settings)

    @classmethod
    def open(
        cls,
        index: str | Path,
        model: str | Path | Sequence[str | Path] | None = "default",
        *,
        budget_ms: float | None = None,
        method: str | Method | None = None,
        first_stage: str | None = None,
        adaptive: bool | None = None,
        regularization: float | None = None,
        candidates: int | None = None,
        plan: str | Path | None = None,
        device: str = "cpu",
        exact: bool = False,
        calibrate: bool = True,
    ) -> "Pipeline":
        """Opens folders; without a model, the first stage alone. `plan` is a file's path."""
        names = [model] if isinstance(model, str | Path) else model or []
        return cls(
            Index(index),
            [Reranker.load(name, device, exact=exact) for name in names],
            budget_ms=budget_ms,
            method=method,
            first_stage=first_stage,
            adaptive=adaptive,
            regularization=regularization,
            candidates=candidates,
            plan=None if plan is None else CascadePlan.read(plan),
            calibrate=calibrate,
        )

    def _dense_stages(self) -> list[IndexStage]:
        """The models that have vectors of documents, the best one last."""
        if self.first_stage is not None:
            return []
        return [stage for stage in self.stages if stage.store and stage.store.has_doc_vectors]

    def _dense_stage(self) -> IndexStage | None:
        return next(reversed(self._dense_stages()), None)

    @property
    def retrieval(self) -> Retrieval:
        """How candidates are found in the index."""
        return self._asked or ("bm25" if self._dense_stage() is None else DEFAULT_RETRIEVAL)

    @property
    def reranker(self) -> Reranker:
        """The first model."""
        return self.stages[0].reranker

    @property
    def store(self) -> Store | None:
        """Of the first model."""
        return self.stages[0].store

    def __call__(
        self,
        query: str,
        k: int = 10,
        *,
        budget_ms: float | None = None,
        method: str | Method | None = None,
        where: FilterSpec | None = None,
    ) -> Ranking:
        """The best k. `budget_ms` starts now and covers everything. `where` filters documents by
        their metadata, before candidates are taken: `{"lang": "en"}`."""
        deadline = self._deadline(budget_ms)
        with span("query", k=k):
            *_, final = self.stream(
                query, k, deadline=deadline, method=method, first=False, where=where
            )
        budget_ms = budget_ms or self.budget_ms
        if budget_ms is not None and final.cut_short and not final.depth:
            warn_of_nothing_reached(budget_ms)
        return final

    async def aquery(self, query: str, k: int = 10, **options: Any) -> Ranking:
        """The same with `await`, in a thread. The budget starts when a thread is free."""
        import asyncio  # takes a twentieth of the time to a first ranking

        return await asyncio.to_thread(self, query, k, **options)

    def stream(
        self,
        query: str,
        k: int = 10,
        *,
        deadline: Deadline = NEVER,
        method: str | Method | None = None,
        first: bool = True,
        where: FilterSpec | None = None,
    ) -> Iterator[Ranking]:
        """Yields the first stage's ranking if `first`, then the final one."""
        check_query(query)
        check_k(k)
        clock = self.scheduler.clock
        depths = self._depths_within(deadline)
        plan = self._plan_depths(depths, deadline)
        encoded = self._encode_query(query, plan, deadline)
        began = clock()
        depth = max(k, self.candidates)
        with span("retrieve", documents=depth):
            found = self._retrieve(query, depth, encoded, method, deadline, where)
        took = clock() - began
        if encoded is None:
            self.scheduler.learn("terms", len(self.index), took)
        cascade = Cascade(
            found,
            plan=plan,
            encoded=encoded,
            neighbourhood=self._neighbourhood(where),
            timing={"first_stage": took},
        )
        if first and self.stages:
            yield self._ranking(query, cascade, k, "first_stage")
        yield self._final(query, cascade, k, depths, deadline)

    def top_k(
        self,
        query: str,
        k: int,
        *,
        method: str | Method | None = None,
        deadline: Deadline = NEVER,
        where: FilterSpec | None = None,
    ) -> TopK:
        """The first stage's best k, by numbers in the index; a `method` is one of the index."""
        plan = self._plan_depths(self._depths_within(deadline), deadline)
        encoded = self._encode_query(query, plan, deadline)
        return self._retrieve(query, k, encoded, method, deadline, where).head(k)

    def _plan_depths(self, depths: Sequence[int], deadline: Deadline) -> Sequence[int]:
        """How deep each model is to go, where that decides by whose vectors documents are found."""
        if self.plan is not None:
            return depths
        if self.retrieval == "bm25" or len(self._dense_stages()) < 2:
            return ()
        left = self.scheduler.ms_after_terms(deadline, len(self.index), self.candidates)
        return plan_depths([stage.expected_ms for stage in self.stages], depths, left)

    def _encode_query(
        self, query: str, plan: Sequence[int], deadline: Deadline
    ) -> EncodedQuery | None:
        """By the model whose vectors find documents, if there is time for it: by the best one that
        the plan has work for. Another one's query would take the time in which it ranks."""
        stages = self._dense_stages()
        if self.retrieval == "bm25" or not stages or not query.strip():
            return None
        idle = [stage for stage, depth in zip(self.stages, plan, strict=False) if not depth]
        stage = next((stage for stage in reversed(stages) if stage not in idle), stages[-1])
        left = deadline.remaining() - stage.least_ms()
        if left <= 0:
            stage.query_cost.relax()
            return None
        enough = stage.scoring_ms(_ENOUGH_DOCS)
        if not self.scheduler.has_time_for_vectors(left, len(self.index), enough):
            return None
        began = self.scheduler.clock()
        embeddings = stage.reranker.encode_query(query)
        return EncodedQuery(stage, embeddings, self.scheduler.clock() - began)

    def _retrieve(
        self,
        query: str,
        k: int,
        encoded: EncodedQuery | None,
        method: str | Method | None,
        deadline: Deadline,
        where: FilterSpec | None,
    ) -> TopK:
        """At least k, if there are as many: hybrid retrieval gives all that either list has."""
        if self.first_stage is None or method is not None:
            method = method or self.method
            by_terms = self.index.top_k([query], k, method, deadline=deadline, where=where)[0]
            if encoded is None:
                return by_terms._replace(found_by=np.full(len(by_terms.docs), BY_TERMS, np.uint8))
            filtered = self.index.snapshot.with_filter(where)
            began = self.scheduler.clock()
            by_vector = encoded.stage.nearest(encoded.embeddings, k, filtered, deadline)
            found = fuse(by_terms, by_vector, k, dense=self.retrieval == "dense")
            self.scheduler.learn("vectors", len(self.index), self.scheduler.clock() - began)
            return found
        if where is not None:
            raise InputError(
                "an external first stage cannot filter; leave out where, or give a method of ours"
            )
        ids, scores = retrieve(self.first_stage, query, k, deadline)
        numbers = [self.index.snapshot.find(str(doc_id)) for doc_id in ids]
        if -1 in numbers:
            raise InputError(
                f"{self.index.path} has no document {ids[numbers.index(-1)]!r}, which the first "
                "stage found; add it, or give the index that it searches"
            )
        return TopK(np.array(numbers, np.int64), np.array(scores, np.float32))

    def _neighbourhood(self, where: FilterSpec | None) -> Neighbourhood | None:
        """The graph of the store whose vectors find documents."""
        stage = self._dense_stage()
        adaptive = self.retrieval != "bm25" if self._adaptive is None else self._adaptive
        if not adaptive or stage is None or stage.store is None or not stage.store.has_graph:
            return None
        snapshot = self.index.snapshot
        return Neighbourhood(stage.store, snapshot, snapshot.with_filter(where))

    def rerank(
        self,
        query: str,
        docs: NDArray[np.int64],
        scores: NDArray[np.floating],
        *,
        budget_ms: float | None = None,
    ) -> Ranking:
        """Re-ranks given candidates, by their numbers in the index, best first."""
        first = TopK(docs, scores.astype(np.float32))
        deadline = self._deadline(budget_ms)
        depths = self._depths_within(deadline)
        return self._final(query, Cascade(first), len(docs), depths, deadline)

    def _deadline(self, budget_ms: float | None) -> Deadline:
        check_budget(budget_ms)
        return Deadline.after(budget_ms or self.budget_ms, self.scheduler.clock)

    @property
    def depths(self) -> Sequence[int]:
        """How deep each model goes at most, without a budget."""
        return self._depths_within(NEVER)

    def _depths_within(self, deadline: Deadline) -> Sequence[int]:
        """How deep each model goes at most, in the time of the whole query."""
        if self.plan is None:
            return self._depths
        return [min(depth, self.candidates) for depth in self.plan.depths(deadline.remaining())]

    def _final(
        self, query: str, cascade: Cascade, k: int, depths: Sequence[int], deadline: Deadline
    ) -> Ranking:
        planned = self.plan is not None
        cascade.rerank(query, self.stages, depths, deadline, self.scheduler, planned=planned)
        return self._ranking(query, cascade, k, "sorting" if self.stages else "first_stage")

    def _ranking(self, query: str, cascade: Cascade, k: int, hop: str) -> Ranking:
        """The ranking after the stages so far; the time to build it counts for this hop."""
        snapshot = self.index.snapshot

        def make_hits() -> tuple[Hit, ...]:
            show = self.index.snippet_function(query)
            return cascade.hits(k, snapshot.doc_id, snapshot.doc, show, self._found_by)

        with span("sort"):
            hits = cascade.time_sorting(self.scheduler, hop, make_hits)
        brought_in = int((cascade.parents >= 0).sum())
        found = min(self.candidates, len(cascade.places) - brought_in) + brought_in
        return cascade.ranking(query, hits, max(found, *cascade.depths, 0))

    def first_scores(
        self,
        query: str,
        doc_ids: Sequence[str],
        *,
        method: str | Method | None = None,
        deadline: Deadline = NEVER,
    ) -> list[float]:
        """The first stage's scores of documents; 0 where it does not find one."""
        numbers = [self.index.snapshot.find(doc_id) for doc_id in doc_ids]
        depths = [max(1, self.candidates), len(self.index)]
        # What was found otherwise is ranked without a score by terms.
        for depth in depths if self.retrieval == "bm25" else depths[:1]:
            found = self.index.top_k([query], depth, method or self.method, deadline=deadline)[0]
            wanted = np.isin(found.docs, numbers)
            if wanted.sum() == len(set(numbers)):
                break
        scores = dict(zip(found.docs[wanted].tolist(), found.scores[wanted].tolist(), strict=True))
        return [scores.get(number, 0.0) for number in numbers]

    def calibrate(self) -> None:
        """Retrieves, scores and sorts a few documents: code is compiled, and costs are learned, so
        that the first query is predicted as well as the tenth."""
        use_compiled_code()
        snapshot = self.index.snapshot
        docs = sample_docs(snapshot, max(CALIBRATION_DOCS))
        if len(docs):
            words = snapshot.doc(int(docs[0])).text.split()[:5]
            ample = Deadline.after(_AMPLE_MS)  # queries have a deadline, too
            deepest = max(1, self.candidates)
            # A method of ours: an external first stage is not asked.
            for _ in range(1 if self.retrieval == "bm25" else _VECTOR_TRIALS):
                self.top_k(" ".join(words), deepest, method=self.method, deadline=ample)
            if (near := self._neighbourhood(None)) is not None:
                near.find(docs[:1])
        for stage in self.stages:
            stage.calibrate(self.scheduler.clock)
        for size in CALIBRATION_DOCS if self.stages and len(docs) else ():
            few = Cascade(TopK(docs[:size], np.zeros(len(docs[:size]), np.float32)))
            few.scored_at = self.scheduler.clock()
            for stage in self.stages:  # it compares as many, however many candidates there are
                stage.regularize(docs, np.zeros(len(docs), np.float32))
            self._ranking("", few, 10, "sorting")

    def follow(self, index: Index, *, verify: bool = False) -> "Pipeline":
        """The same on a changed index, with stores as they are now and all that was learned."""
        fresh = copy.copy(self)
        fresh.index = index.pin()
        fresh.stages = tuple(stage.follow(fresh.index, verify=verify) for stage in self.stages)
        for stage in fresh.stages:
            stage.calibrate(self.scheduler.clock)
        return fresh


def _check_plan(plan: CascadePlan, rerankers: Sequence[Reranker]) -> None:
    if list(plan.models) != [fingerprint(reranker.model) for reranker in rerankers]:
        raise InputError(
            "this plan was made for other models, or for these in another order; give those "
            "models, or make a plan for these: glassrank budget … --plan FILE"
        )


def rerank_run(
    pipeline: Pipeline, run: Run, queries: Mapping[str, str]
) -> Iterator[tuple[str, Ranking]]:
    """Re-ranks each query's candidates; those beyond the depth keep their order, below."""
    for query_id, doc_ids, scores in run.items():
        candidates = find_candidates(pipeline.index, doc_ids, scores)
        yield query_id, pipeline.rerank(queries[query_id], *candidates)


def find_candidates(
    index: Index,
    doc_ids: Sequence[str],
    scores: NDArray[np.float64],
    depth: int | None = None,
    run: str = "the run",
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The first `depth` candidates of one query, in trec_eval's order."""
    from glassrank.corpus.runs import trec_order  # `rank` does not wait for the file readers

    order = trec_order(doc_ids, scores)[:depth]
    numbers = np.array([index.snapshot.find(doc_ids[row]) for row in order], np.int64)
    if (numbers < 0).any():
        missing = doc_ids[order[np.argmax(numbers < 0)]]
        raise InputError(
            f"{index.path} has no document {missing!r}, which {run} has; "
            "give the index that the run was made from"
        )
    return numbers, scores[order]
