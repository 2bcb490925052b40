"""Models one after the other: the first orders all candidates, each further one the best of them.

What the time does not allow a model keeps the order of those before it, below what it has placed.
A pipeline over an index and a list of texts both go this way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Deadline
from glassrank.ranking.candidates import Stage
from glassrank.ranking.live import best_first
from glassrank.ranking.planner import Planner
from glassrank.retrieve.search import TopK
from glassrank.types import Hit, query_name, scoring_name


@dataclass
class Cascade:
    """Candidates of one query on their way through the stages."""

    first: TopK
    places: NDArray[np.int64] = field(init=False)  # (n,) in the first stage's order, best first
    scores: NDArray[np.float64] = field(init=False)  # (n,)
    probabilities: NDArray[np.float64] = field(init=False)  # (n,) of being relevant, or nan
    depths: tuple[int, ...] = ()
    """How many each model has scored."""
    timing: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = np.arange(len(self.first.docs))
        self.scores = self.first.scores.astype(np.float64)
        self.probabilities = np.full(len(self.places), np.nan)

    def rerank(
        self,
        query: str,
        stages: Sequence[Stage],
        depths: Sequence[int],
        deadline: Deadline,
        planner: Planner,
    ) -> None:
        """Each stage in its turn, no deeper than `depths` says and the time allows."""
        within = len(self.places)
        for stage, depth in zip(stages, depths, strict=True):
            if depth:
                within = self._stage(query, stage, min(depth, within), deadline, planner)
            self.depths += (within if depth else 0,)

    def _stage(
        self, query: str, stage: Stage, depth: int, deadline: Deadline, planner: Planner
    ) -> int:
        """How many of the best so far have been placed anew."""
        if not depth:
            return 0
        # Further models begin if they are likely to end; the first one as long as there is time.
        if deadline.left() <= (stage.least_ms() if self.depths else 0.0):
            stage.cost.relax()
            stage.query_cost.relax()
            return 0
        began = planner.clock()
        words = stage.reranker.encode_query(query)
        best = self.places[:depth]
        candidates = stage.ready(words, self.first.docs[best], self.first.scores[best])
        ready = planner.clock()
        stage.query_cost.learn(depth, ready - began)
        due = planner.scored_by(deadline, len(self.places))
        scored = planner.score(candidates.scores, candidates.sizes, stage.cost, due, stage.at_once)
        number = len(self.depths)
        self.timing[query_name(number)] = ready - began
        self.timing[scoring_name(number)] = planner.clock() - ready
        if scored.depth:
            self.probabilities[: scored.depth] = (
                np.nan
                if stage.calibration is None
                else stage.calibration.probabilities(scored.values)
            )
            self._place(scored.values)
        return scored.depth

    def _place(self, scores: NDArray[np.float32]) -> None:
        """These are the scores of the best so far; the rest stays below them, as it was."""
        order, values = best_first(scores, len(self.places))
        rest = self.scores[len(scores) :]
        if any(self.depths) and len(rest):
            # Another model's scores keep their differences, and fall below the lowest of these.
            highest = values[len(scores) - 1] - 1
            values[len(scores) :] = rest - max(0.0, rest[0] - highest)
        self.places, self.scores = self.places[order], values
        self.probabilities = self.probabilities[order]

    def hits(self, k: int | None, doc_id: Callable[[int], str]) -> tuple[Hit, ...]:
        """The best k; `doc_id` names a document by its number."""
        placed_by = np.zeros(len(self.places), np.int64)
        for number, depth in enumerate(self.depths, 1):
            placed_by[:depth] = number  # the last model that came as far as this
        columns = self.places[:k], self.scores[:k], placed_by[:k], self.probabilities[:k]
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return tuple(
            Hit(
                rank,
                doc_id(int(self.first.docs[place])),
                score,
                place + 1,
                float(self.first.scores[place]),
                number,
                None if isnan(probability) else probability,
            )
            for rank, (place, score, number, probability) in enumerate(rows, 1)
        )
