"""The planner of time: by when each piece of work must be done, and what may still begin.

Every rule that divides time stands here: what is kept for the work that follows, what is kept for
what nobody can predict, how large a piece of scoring may be, and what a request may take while
others wait. Pipelines and the service ask; what work costs is learned while it runs.
"""

import threading
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Clock, Deadline, now
from glassrank.rank.cost import CostModel

Work = Literal["sending", "answer", "snippets", "sorting"]
"""What is done besides encoding and scoring: an answer's way to its client, all of an answer but
its scoring, its titles and snippets, its hits."""

_SPARE_OF_ANSWER, _MOST_OF_ANSWER = 0.06, 0.25
"""Of a request's budget: kept for what nobody can predict, such as other programs; and the most
that is kept in all, or nothing would be answered, and nothing learned any more."""
_MOST_FOR_SNIPPETS = 0.5
"""The share of a query's time that titles and snippets may claim before ranking begins."""
_SPARE_OF_SCORING, _MOST_SPARE_MS = 0.08, 5.0
"""The share of the time left for scoring that is kept for what no prediction knows of."""
_PIECE = 1 / 3
"""Of the time that is left: a wrong prediction, or a pause of the machine, is noticed while there
is time to make up for it."""
_LONGEST_MS, _LONGEST_SHARE = 8.0, 0.25
"""Of a piece, where there is a budget; and no more than this share of the time that scoring has."""
_WORTH_ITS_START = 4.0
"""A piece that is to take less than so many times its fixed cost is not worth its start."""
_NEW, _TRUSTED = 0.1, 4.0
"""How much the newest request says about how long they take; and how many times the usual it counts
at most, since one long pause of the machine says little about the requests to come."""


class Scored(NamedTuple):
    """Scores of the first `depth` candidates."""

    depth: int
    values: NDArray[np.float32]  # (depth,)


class Planner:
    """Knows what each kind of work costs here, and what is promised to it by a deadline."""

    def __init__(self, clock: Clock = now) -> None:
        self.clock = clock
        """What work is timed by; a deadline may look at other clocks besides."""
        self._costs: dict[Work, CostModel] = {}

    def _cost(self, work: Work) -> CostModel:
        return self._costs.setdefault(work, CostModel())

    def learn(self, work: Work, size: float, took: float) -> None:
        """Work of this size took so many milliseconds."""
        self._cost(work).learn(size, took)

    def answer_by(self, arrived: float, budget_ms: float) -> Deadline:
        """When a request's answer must be ready to be sent."""
        kept = self._cost("sending").predict(1) + _SPARE_OF_ANSWER * budget_ms
        return Deadline(self.clock, arrived + budget_ms - min(kept, _MOST_OF_ANSWER * budget_ms))

    def least_for_answer(self, snippets: int) -> float:
        """Milliseconds without which no answer of so many snippets is of any use."""
        return self._cost("answer").predict(snippets)

    def ranked_by(self, deadline: Deadline, snippets: int) -> Deadline:
        """When a query must be ranked so that there is time to show its hits."""
        most = max(0.0, _MOST_FOR_SNIPPETS * deadline.left())
        return deadline.earlier(min(self._cost("snippets").predict(snippets), most))

    def scored_by(self, deadline: Deadline, candidates: int) -> Deadline:
        """When so many candidates must be scored so that there is time to sort them."""
        kept = self._cost("sorting").predict(candidates)
        return deadline.earlier(kept + min(_SPARE_OF_SCORING * deadline.left(), _MOST_SPARE_MS))

    def score(
        self,
        score: Callable[[int, int], NDArray[np.float32]],
        sizes: NDArray[np.floating],
        cost: CostModel,
        deadline: Deadline,
        most_at_once: float,
    ) -> Scored:
        """`score(start, stop)` for as many candidates as the time allows, from the first on, in
        pieces; no piece begins that is predicted to end too late."""
        values: list[NDArray[np.float32]] = []
        start = 0
        longest = min(_LONGEST_MS, _LONGEST_SHARE * deadline.left())
        while start < len(sizes):
            count = _next_piece(sizes[start:], cost, deadline.left(), longest, most_at_once)
            if count == 0:
                if start == 0:
                    cost.relax()
                break
            began = self.clock()
            values.append(score(start, start + count))
            cost.learn(float(sizes[start : start + count].sum()), self.clock() - began)
            start += count
        return Scored(start, np.concatenate([np.empty(0, np.float32), *values]))


def _next_piece(
    sizes: NDArray[np.floating], cost: CostModel, left: float, longest: float, most_at_once: float
) -> int:
    """How many candidates come next; none when the next one alone would end too late."""
    largest = max(1, int(np.searchsorted(np.cumsum(sizes), most_at_once, side="right")))
    if left == float("inf"):
        return largest
    in_piece = cost.fitting(sizes, min(_PIECE * left, longest))
    # Then the rest is used as one piece.
    if in_piece == 0 or _WORTH_ITS_START * cost.predict(0) > left:
        return min(cost.fitting(sizes, left), largest)
    return min(in_piece, largest)


class Load:
    """What some threads have promised to those who wait for them: how long until one is free, and
    how much of its time a request may take, so that those behind it have any."""

    def __init__(self, threads: int, clock: Clock = now) -> None:
        self.threads = threads
        self.clock = clock
        self.usual_ms = 0.0
        """How long a request has lately taken, once it began."""
        self.waiting = 0
        self._began: dict[int, float] = {}  # thread -> when it began what it is at

    def expected_wait(self) -> float:
        if len(self._began) + self.waiting < self.threads:
            return 0.0
        # One that takes longer than usual may end at any moment, or not: half as long again.
        at = self.clock()
        running = sum(
            max(self.usual_ms - (at - began), self.usual_ms / 2) for began in self._began.values()
        )
        return (running + self.waiting * self.usual_ms) / self.threads

    def begin(self) -> float:
        """This thread begins a request; the share of its time that the request may take."""
        self._began[threading.get_ident()] = self.clock()
        return 1 / (1 + self.waiting / self.threads)

    def end(self, *, done: bool) -> None:
        """This thread has ended its request; one that failed says nothing about others."""
        took = self.clock() - self._began.pop(threading.get_ident())
        if done:
            took = min(took, _TRUSTED * self.usual_ms) if self.usual_ms else took
            self.usual_ms += (_NEW if self.usual_ms else 1.0) * (took - self.usual_ms)
