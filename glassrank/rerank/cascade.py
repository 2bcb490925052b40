"""A cascade: the first model orders all candidates, each further one re-orders the best of them.

What a model has no time for keeps its order, below what the model has scored. A pipeline over an
index and a list of texts both go this way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Deadline
from glassrank.index.search import BY_NEIGHBOUR, TopK
from glassrank.models.model import Floats, Ints, TokenEmbeddings
from glassrank.rerank.adaptive import Neighbourhood
from glassrank.rerank.candidates import ScoredDocs
from glassrank.rerank.cascade_plan import plan_depths
from glassrank.rerank.scheduler import Scheduler
from glassrank.rerank.stages import Candidates, IndexStage, Stage
from glassrank.tracing import span
from glassrank.types import Doc, Hit, Ranking, query_step_name, scoring_step_name


class EncodedQuery(NamedTuple):
    """A query that was encoded before the stage that needs it, and the milliseconds of that."""

    stage: IndexStage
    embeddings: TokenEmbeddings
    took: float


@dataclass
class Cascade:
    """Candidates of one query on their way through the stages. A candidate's place is that in the
    first stage's order."""

    first: TopK
    places: Ints = field(init=False)  # (n,) best first
    scores: NDArray[np.float64] = field(init=False)  # (n,) in the order of `places`
    # By place:
    probabilities: NDArray[np.float64] = field(init=False)  # (n,) of relevance, or nan
    regularization: NDArray[np.float64] = field(init=False)  # (n,) what it adds to scores
    spans: Ints = field(init=False)  # (n, 2) best passages; -1: the whole text
    truncated: NDArray[np.bool_] = field(init=False)  # (n,) whether something was not read
    parents: Ints = field(init=False)  # (n,) who brought a candidate in; -1: nobody
    depths: tuple[int, ...] = ()
    """How many candidates each model has scored."""
    models: tuple[str, ...] = ()
    """Their names."""
    plan: Sequence[int] = ()
    """How deep each model is to go, where that was planned before there were candidates."""
    encoded: EncodedQuery | None = None
    """What the first stage has encoded."""
    neighbourhood: Neighbourhood | None = None
    """Where the first model finds further candidates."""
    timing: dict[str, float] = field(default_factory=dict)
    cut_short: bool = False
    """Whether a model has scored fewer than planned."""
    num_encoded: int = 0
    """How many documents were encoded on the fly."""
    scored_at: float | None = None
    """When the last stage had its scores, by the scheduler's clock: then sorting began."""
    missing: set[str] = field(init=False)
    """Shards that have not answered, in any stage."""

    def __post_init__(self) -> None:
        self.places = np.arange(len(self.first.docs))
        self.parents = np.full(len(self.places), -1)
        self.missing = set(self.first.missing)
        fused = self.first.fused
        self.scores = (self.first.scores if fused is None else fused).astype(np.float64)
        self.probabilities = np.full(len(self.places), np.nan)
        self.regularization = np.zeros(len(self.places))
        self.spans = np.full((len(self.places), 2), -1)
        self.truncated = np.zeros(len(self.places), np.bool_)

    def rerank(
        self,
        query: str,
        stages: Sequence[Stage],
        depths: Sequence[int],
        deadline: Deadline,
        scheduler: Scheduler,
        *,
        planned: bool = False,
    ) -> None:
        """Each stage in turn, no deeper than `depths` and the time allow. Unless the depths are
        `planned`, time is shared here by what each model costs: the last one takes all that is
        left, and what it is expected to need is reserved for it."""
        asked = [min(depth, len(self.places)) for depth in depths]
        if planned or len(stages) < 2:
            self._rerank(query, stages, asked, [deadline] * len(stages), scheduler)
            return
        left = scheduler.scoring_deadline(deadline, len(self.places)).remaining()
        costs = [self._expect(stage) for stage in stages]
        plan = self.plan
        if not plan or max(plan) > len(self.places):
            plan = plan_depths(costs, asked, left)
        needs = []
        for stage, expected_ms, depth in zip(stages, costs, plan, strict=True):
            needs.append(expected_ms(depth) if depth else 0.0)
            if not depth:
                stage.cost.relax()  # it may have been slow for a moment only
                stage.query_cost.relax()
        deadlines = [deadline.earlier(sum(needs[number + 1 :])) for number in range(len(stages))]
        last = max((number for number, depth in enumerate(plan) if depth), default=0)
        going = [*plan[:last], asked[last], *plan[last + 1 :]]
        self._rerank(query, stages, going, deadlines, scheduler)
        if not any(self.depths):  # the last model was to work alone, and has no time
            self.depths = self.models = ()
            self._rerank(query, stages, asked, [deadline] * len(stages), scheduler)
        self.cut_short = self.depths[-1] < asked[-1] or max(self.depths) < max(asked)

    def _expect(self, stage: Stage) -> Callable[[int], float]:
        """What a stage is likely to take from now on: its query may be encoded already."""
        took = self.encoded.took if self.encoded and self.encoded.stage is stage else 0.0
        return lambda docs: max(0.0, stage.expected_ms(docs) - took)

    def _rerank(
        self,
        query: str,
        stages: Sequence[Stage],
        depths: Sequence[int],
        deadlines: Sequence[Deadline],
        scheduler: Scheduler,
    ) -> None:
        within = len(self.places)
        for stage, depth, deadline in zip(stages, depths, deadlines, strict=True):
            wanted = min(depth, within)
            if depth:
                within = self._run_stage(query, stage, wanted, deadline, scheduler)
            self.depths += (within if depth else 0,)
            self.models += (stage.reranker.name,)

    def _run_stage(
        self, query: str, stage: Stage, depth: int, deadline: Deadline, scheduler: Scheduler
    ) -> int:
        """How many of the best so far have a new score."""
        if not depth:
            return 0
        was_cut, self.cut_short = self.cut_short, True  # unless it comes to the end
        # A model starts only if it is likely to score a document: the query alone is of no use.
        given = self.encoded if self.encoded and self.encoded.stage is stage else None
        least = stage.least_ms() if given is None else stage.cost.predict(1)
        if deadline.remaining() <= least:
            stage.cost.relax()
            stage.query_cost.relax()
            return 0
        began = scheduler.clock()
        if self.scored_at is not None:  # since then the scores of the model before were sorted
            self.timing[next(reversed(self.timing))] += began - self.scored_at
        name = stage.reranker.model.name
        with span("batch", model=name, documents=depth):
            encoded = given.embeddings if given else stage.reranker.encode_query(query)
            rounds = None
            if self.neighbourhood is not None and not any(self.depths):
                size = scheduler.first_round(stage.cost, stage.mean_size, deadline)
                rounds = _Rounds(self, stage, encoded, depth, size)
            best = self.places[: len(rounds.asked) if rounds else depth]
            passages = stage.cut_to(self.first.docs[best], self.spans[best])
            first = self.first.docs[best], self.first.scores[best]
            candidates = stage.prepare_candidates(Candidates(encoded, *first))
        prepared = scheduler.clock()
        query_ms = prepared - began + (given.took if given else 0.0)
        stage.query_cost.learn(1, query_ms)
        scoring_deadline = scheduler.scoring_deadline(deadline, len(self.places))
        with span("interact", model=name, documents=depth):
            scored = stage.score(candidates, scheduler, scoring_deadline, grow=rounds)
        self.scored_at = scheduler.clock()
        self.missing.update(scored.missing)
        number = len(self.depths)
        self.timing[query_step_name(number)] = query_ms
        self.timing[scoring_step_name(number)] = took = self.scored_at - prepared
        wanted = len(rounds.asked) if rounds else depth
        self.cut_short = was_cut or len(scored.places) < wanted
        stage.learn_depth(wanted, len(scored.places), took)
        if len(scored.places):
            if passages is not None:
                scored = scored._replace(spans=_shift_spans(scored.spans, passages[scored.places]))
            places = self.places[scored.places]
            self.probabilities[places] = stage.probabilities(
                scored.scores, self.first.scores[places]
            )
            added = stage.regularize(self.first.docs[places], scored.scores, deadline)
            self.regularization[places] = added
            self.spans[places], self.truncated[places] = scored.spans, scored.truncated
            self.num_encoded = max(self.num_encoded, scored.num_encoded)
            self._sort(scored.places, scored.scores + added)
        return len(scored.places)

    def bring_in(self, best: Ints, was_asked: NDArray[np.bool_], most: int) -> Ints:
        """The places of neighbours of the best candidates, by their places, without those that a
        round had before; those that were no candidates become ones."""
        assert self.neighbourhood is not None
        near = self.neighbourhood.find(self.first.docs[best])
        order = np.argsort(self.first.docs)
        at = np.searchsorted(self.first.docs, near.docs, sorter=order)
        places = order[np.minimum(at, len(order) - 1)]
        is_new = self.first.docs[places] != near.docs
        wanted = np.flatnonzero(is_new | ~was_asked[places])[:most]
        places, docs, parents = places[wanted], near.docs[wanted], near.parents[wanted]
        is_new = is_new[wanted]
        places[is_new] = len(order) + np.arange(is_new.sum())
        self._append(docs[is_new], parents[is_new])
        return places

    def _append(self, docs: Ints, parents: Ints) -> None:
        count, found_by = len(docs), self.first.found_by
        self.first = self.first._replace(
            docs=np.concatenate([self.first.docs, docs]),
            scores=_extend(self.first.scores, count, 0.0),
            found_by=None if found_by is None else _extend(found_by, count, BY_NEIGHBOUR),
        )
        self.parents = np.concatenate([self.parents, parents])
        self.places = np.concatenate([self.places, len(self.places) + np.arange(count)])
        self.scores = _extend(self.scores, count, 0.0)
        self.probabilities = _extend(self.probabilities, count, np.nan)
        self.regularization = _extend(self.regularization, count, 0.0)
        self.spans = _extend(self.spans, count, -1)
        self.truncated = _extend(self.truncated, count, False)

    def _sort(self, ranks: Ints, new_scores: Floats) -> None:
        """Sorts candidates with new scores, by their ranks so far; the rest stay below them, in
        their order."""
        count = len(ranks)
        left = np.delete(np.arange(len(self.places)), ranks)
        order, scores = sort_scored(new_scores, len(self.places))
        if any(self.depths) and len(left):
            # Another model's scores keep their differences, and fall below the lowest of these.
            rest = self.scores[left]
            highest = scores[count - 1] - 1
            scores[count:] = rest - max(0.0, rest[0] - highest)
        self.places = self.places[np.concatenate([ranks, left])[order]]
        self.scores = scores

    def ranking(self, query: str, hits: tuple[Hit, ...], found: int) -> Ranking:
        """These hits, with the depths that the stages reached and the time they took."""
        timing = {**self.timing, "total": sum(self.timing.values())}
        return Ranking(
            query,
            hits,
            max(self.depths, default=0),
            timing,
            found,
            self.depths,
            self.cut_short,
            self.num_encoded,
            int(self.truncated.sum()),
            missing=tuple(sorted(self.missing)),
        )

    def time_sorting(
        self, scheduler: Scheduler, hop: str, make_hits: Callable[[], tuple[Hit, ...]]
    ) -> tuple[Hit, ...]:
        """What `make_hits` gives; the time that it takes is learned, and counts for this hop."""
        began = scheduler.clock() if self.scored_at is None else self.scored_at
        hits = make_hits()
        took = scheduler.clock() - began
        scheduler.learn("sorting", len(self.places), took)
        self.timing[hop] = self.timing.get(hop, 0.0) + took
        return hits

    def hits(
        self,
        k: int | None,
        doc_id: Callable[[int], Any],
        doc: Callable[..., Doc],
        show: Callable[[str, tuple[int, int] | None], str] | None = None,
        found_by: Sequence[tuple[str, ...]] = ((),),
    ) -> tuple[Hit, ...]:
        """The best k; `doc_id` and `doc` name and read a document, `show` makes a snippet."""
        best = self.places[:k]
        stages = np.zeros(len(best), np.int64)
        for number, depth in enumerate(self.depths, 1):
            stages[:depth] = number  # the last model that scored it
        names = (None, *self.models)
        kinds = np.zeros(len(self.places), np.uint8)
        if self.first.found_by is not None:
            kinds = self.first.found_by
        by_place = (
            *(self.first.docs, self.first.scores, kinds, self.parents),
            *(self.probabilities, self.spans, self.truncated, self.regularization),
        )
        columns = best, self.scores[:k], stages, *(column[best] for column in by_place)
        hits = []
        for rank, row in enumerate(zip(*(c.tolist() for c in columns), strict=True), 1):
            place, score, stage, number, first_score, kind, parent, *read = row
            chance, span, truncated, added = read
            hit = Hit(
                rank,
                doc_id(number),
                score,
                place + 1 if parent < 0 else None,
                first_score,
                names[stage],
                None if isnan(chance) else chance,
                None if span[1] < 0 else (span[0], span[1]),
                truncated,
                stage,
                found_by[kind],
                None if parent < 0 else doc_id(parent),
                added,
            )
            hits.append(hit.with_reader(partial(doc, number), show))
        return tuple(hits)


def _extend(values: NDArray[Any], count: int, value: float) -> NDArray[Any]:
    """So many more values at the end."""
    return np.concatenate([values, np.full((count, *values.shape[1:]), value, values.dtype)])


class _Rounds:
    """The rounds of the first model: see `adaptive.py`. Places are those of the first stage's
    order, which nothing has changed yet."""

    def __init__(
        self, cascade: Cascade, stage: Stage, query: TokenEmbeddings, depth: int, first: int
    ) -> None:
        """`first` is the size of the first round."""
        self._cascade, self._stage, self._query, self._depth = cascade, stage, query, depth
        self._size = first
        self.asked = np.arange(min(first, depth))
        """The places of all candidates that a round had."""

    def __call__(self, scored: ScoredDocs) -> Any:
        """The next round; None when there is nothing left."""
        best = scored.places[np.argsort(-scored.scores, kind="stable")]
        was_asked = np.zeros(len(self._cascade.first.docs), np.bool_)
        was_asked[self.asked] = True
        near = self._cascade.bring_in(best, was_asked, self._size)
        was_asked[near[near < len(was_asked)]] = True
        more = np.flatnonzero(~was_asked[: self._depth])[: self._size]
        places = np.concatenate([near, more])
        self.asked = np.concatenate([self.asked, places])
        self._size *= 2
        first = self._cascade.first
        if not len(places):
            return None
        asked = Candidates(self._query, first.docs[places], first.scores[places], places)
        return self._stage.prepare_candidates(asked)


def _shift_spans(spans: Ints, passages: Ints) -> Ints:
    """Spans (n, 2) within passages of texts as spans of the texts; -1 for a whole one."""
    within = np.where(spans[:, 1:] < 0, passages, spans + passages[:, :1])
    return np.where(passages[:, 1:] < 0, spans, within)


def sort_scored(scores: Floats, total: int) -> tuple[Ints, NDArray[np.float64]]:
    """Places and scores of all `total` candidates, of which the first have these `scores`: those by
    descending score, the rest below them in their order, with scores that fall by one."""
    order = np.argsort(-scores, kind="stable")
    places = np.concatenate([order, np.arange(len(scores), total)])
    lowest = float(scores[order[-1]]) if len(order) else 0.0
    below = lowest - 1 - np.arange(total - len(scores))
    return places, np.concatenate([scores[order].astype(np.float64), below])
