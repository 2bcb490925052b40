"""Models one after the other: the first orders all candidates, each further one the best of them.

What the time does not allow a model keeps the order of those before it, below what it has placed.
A pipeline over an index and a list of texts both go this way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Deadline
from glassrank.index.search import TopK
from glassrank.rerank.best_passages import ScoredDocs
from glassrank.rerank.default_plan import plan_depths
from glassrank.rerank.reranker import best_first
from glassrank.rerank.scheduler import Scheduler
from glassrank.rerank.stages import Stage
from glassrank.tracing import span
from glassrank.types import Doc, Hit, Ranking, query_step_name, scoring_step_name


@dataclass
class Cascade:
    """Candidates of one query on their way through the stages."""

    first: TopK
    places: NDArray[np.int64] = field(init=False)  # (n,) in the first stage's order, best first
    scores: NDArray[np.float64] = field(init=False)  # (n,)
    probabilities: NDArray[np.float64] = field(init=False)  # (n,) of being relevant, or nan
    spans: NDArray[np.int64] = field(init=False)  # (n, 2) best passages; -1: no part of a text
    truncated: NDArray[np.bool_] = field(init=False)  # (n,) whether something was not read
    depths: tuple[int, ...] = ()
    """How many each model has scored."""
    models: tuple[str, ...] = ()
    """Their names."""
    timing: dict[str, float] = field(default_factory=dict)
    cut_short: bool = False
    """Whether a model has scored fewer than it was to."""
    live: int = 0
    """How many documents were encoded on the way."""
    missing: set[str] = field(init=False)
    """Shards that have not answered, in any stage."""

    def __post_init__(self) -> None:
        self.places = np.arange(len(self.first.docs))
        self.missing = set(self.first.missing)
        self.scores = self.first.scores.astype(np.float64)
        self.probabilities = np.full(len(self.places), np.nan)
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
        """Each stage in its turn, no deeper than `depths` says and the time allows. Where these are
        not a plan's, how time is shared is decided here, from what each model costs: the last one
        takes all that is left, and what it was thought to need is kept for it."""
        asked = [min(depth, len(self.places)) for depth in depths]
        if planned or len(stages) < 2:
            self._rerank(query, stages, asked, [deadline] * len(stages), scheduler)
            return
        left = scheduler.scoring_deadline(deadline, len(self.places)).remaining()
        plan = plan_depths(stages, asked, left)
        needs = [
            stage.expected_ms(depth) if depth else 0.0
            for stage, depth in zip(stages, plan, strict=True)
        ]
        for stage, depth in zip(stages, plan, strict=True):
            if not depth:
                stage.cost.relax()  # it may have been slow for a moment only
        dues = [deadline.earlier(sum(needs[number + 1 :])) for number in range(len(stages))]
        last = asked[-1] if plan[-1] else 0
        self._rerank(query, stages, [*plan[:-1], last], dues, scheduler)
        if not any(self.depths):  # the last one, that was to do without the others, has no time
            self.depths = self.models = ()
            self._rerank(query, stages, asked, [deadline] * len(stages), scheduler)
        last_was_cut, some_were_not_read = (
            self.depths[-1] < asked[-1],
            max(self.depths) < max(asked),
        )
        self.cut_short = last_was_cut or some_were_not_read

    def _rerank(
        self,
        query: str,
        stages: Sequence[Stage],
        depths: Sequence[int],
        dues: Sequence[Deadline],
        scheduler: Scheduler,
    ) -> None:
        within = len(self.places)
        for stage, depth, due in zip(stages, depths, dues, strict=True):
            wanted = min(depth, within)
            if depth:
                within = self._stage(query, stage, wanted, due, scheduler)
                self.cut_short |= within < wanted
            self.depths += (within if depth else 0,)
            self.models += (stage.reranker.name,)

    def _stage(
        self, query: str, stage: Stage, depth: int, deadline: Deadline, scheduler: Scheduler
    ) -> int:
        """How many of the best so far have been placed anew."""
        if not depth:
            return 0
        # A model begins if it is likely to come to a document: the query alone is of no use.
        if deadline.remaining() <= stage.least_ms():
            stage.cost.relax()
            stage.query_cost.relax()
            return 0
        began = scheduler.clock()
        name = stage.reranker.model.name
        with span("batch", model=name, documents=depth):
            words = stage.reranker.encode_query(query)
            best = self.places[:depth]
            candidates = stage.prepare_candidates(
                words, self.first.docs[best], self.first.scores[best]
            )
        ready = scheduler.clock()
        stage.query_cost.learn(depth, ready - began)
        due = scheduler.scoring_deadline(deadline, len(self.places))
        with span("interact", model=name, documents=depth):
            placed = stage.score(candidates, scheduler, due)
        self.missing.update(placed.missing)
        number = len(self.depths)
        self.timing[query_step_name(number)] = ready - began
        self.timing[scoring_step_name(number)] = took = scheduler.clock() - ready
        stage.learn_depth(depth, len(placed.which), took)
        if len(placed.which):
            first_stage = self.first.scores[best[placed.which]]
            self._place(placed, stage.probabilities(placed.values, first_stage))
        return len(placed.which)

    def _place(self, placed: ScoredDocs, probabilities: NDArray[np.float64]) -> None:
        """These of the best so far have new scores; the rest stays below them, as it was."""
        scores, count = placed.values, len(placed.which)
        self.live = max(self.live, placed.live)
        left = np.delete(np.arange(len(self.places)), placed.which)
        order, values = best_first(scores, len(self.places))
        if any(self.depths) and len(left):
            # Another model's scores keep their differences, and fall below the lowest of these.
            rest = self.scores[left]
            highest = values[count - 1] - 1
            values[count:] = rest - max(0.0, rest[0] - highest)
        moved = np.concatenate([placed.which, left])[order]
        self.probabilities[placed.which] = probabilities
        self.spans[placed.which], self.truncated[placed.which] = placed.spans, placed.truncated
        self.places, self.probabilities = self.places[moved], self.probabilities[moved]
        self.spans, self.truncated = self.spans[moved], self.truncated[moved]
        self.scores = values

    def ranking(self, query: str, hits: tuple[Hit, ...], found: int) -> Ranking:
        """These hits, with how far the stages came and what time they took."""
        timing = {**self.timing, "total": sum(self.timing.values())}
        return Ranking(
            query,
            hits,
            max(self.depths, default=0),
            timing,
            found,
            self.depths,
            self.cut_short,
            self.live,
            int(self.truncated.sum()),
            missing=tuple(sorted(self.missing)),
        )

    def hits(
        self,
        k: int | None,
        doc_id: Callable[[int], Any],
        doc: Callable[..., Doc],
        show: Callable[[str, tuple[int, int] | None], str] | None = None,
    ) -> tuple[Hit, ...]:
        """The best k; `doc_id` names a document by its number, `doc` reads it, and `show` makes a
        snippet."""
        ranked_by = np.zeros(len(self.places), np.int64)
        for number, depth in enumerate(self.depths, 1):
            ranked_by[:depth] = number  # the last model that came as far as this
        names = (None, *self.models)
        best = self.places[:k]
        columns = (
            *(best, self.first.docs[best], self.first.scores[best]),
            *(self.scores[:k], ranked_by, self.probabilities, self.spans, self.truncated),
        )
        rows = zip(*(column[: len(best)].tolist() for column in columns), strict=True)
        return tuple(
            Hit(
                rank,
                doc_id(number),
                score,
                place + 1,
                first_score,
                names[placed],
                None if isnan(probability) else probability,
                None if span[1] < 0 else (span[0], span[1]),
                truncated,
                placed,
            ).with_reader(partial(doc, number), show)
            for rank, (
                *(place, number, first_score, score, placed, probability, span, truncated),
            ) in enumerate(rows, 1)
        )
