"""The scheduler of time: by when each piece of work must be done, and what may still begin.

Every rule that divides time stands here: what is kept for the work that follows, what is kept for
what nobody can predict, how large a piece of scoring may be, and what a request may take while
others wait. Pipelines and the service ask; what work costs is learned while it runs.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Clock, Deadline, LateError, ending, must_end, now
from glassrank.rerank.cost_model import CostModel

Work = Literal["sending", "answer", "snippets", "sorting", "bm25"]
"""What is done besides encoding and scoring: an answer's way to its client, all of an answer but
its scoring, its titles and snippets, its hits, BM25 over a list of texts."""

_SPARE_OF_ANSWER, _MOST_OF_ANSWER = 0.06, 0.25
"""Of a request's budget: kept for what nobody can predict, such as other programs; and the most
that is kept in all, or nothing would be answered, and nothing learned any more."""
_FOR_COUNTING = 0.2
"""The share of its time in which a request may have the words of its texts counted."""
_MOST_FOR_SNIPPETS = 0.5
"""The share of a query's time that titles and snippets may claim before ranking begins."""
_FOR_BM25 = 0.6
"""The share of a list's time in which its texts are ordered for the models."""
_BM25_MS = 5e-5
"""For a character of a list, until it is known."""
_SPARE_OF_SCORING, _MOST_SPARE_MS = 0.08, 5.0
"""The share of the time left for scoring that is kept for what no prediction knows of."""
_FOR_MARGIN = 0.5
"""Of that, what a last candidate may claim: its prediction has a margin of its own."""
_FOR_STORED = 0.5
"""The share of the time for scoring that stored documents may take, before those are encoded that
the store lacks."""
_PIECE = 1 / 3
"""Of the time that is left: a wrong prediction, or a pause of the machine, is noticed while there
is time to make up for it."""
_LONGEST_MS, _LONGEST_SHARE = 8.0, 0.25
"""Of a piece, where there is a budget; and no more than this share of the time that scoring has."""
_WORTH_ITS_START = 4.0
"""A piece that is to take less than so many times its fixed cost is not worth its start."""


class Scored(NamedTuple):
    """Scores of the first `depth` candidates."""

    depth: int
    values: NDArray[np.float32]  # (depth,)


class Scheduler:
    """Knows what each kind of work costs here, and what is promised to it by a deadline."""

    def __init__(self, clock: Clock = now) -> None:
        self.clock = clock
        """What work is timed by; a deadline may look at other clocks besides."""
        self._costs: dict[Work, CostModel] = {"bm25": CostModel(rate=_BM25_MS)}

    def _cost(self, work: Work) -> CostModel:
        return self._costs.setdefault(work, CostModel())

    def learn(self, work: Work, size: float, took: float) -> None:
        """Work of this size took so many milliseconds."""
        self._cost(work).learn(size, took)

    def response_deadline(self, arrived: float, budget_ms: float) -> Deadline:
        """When a request's answer must be ready to be sent."""
        kept = self._cost("sending").predict(1) + _SPARE_OF_ANSWER * budget_ms
        return Deadline(self.clock, arrived + budget_ms - min(kept, _MOST_OF_ANSWER * budget_ms))

    def min_response_ms(self, snippets: int) -> float:
        """Milliseconds without which no answer of so many snippets is of any use: what the first
        stage finds, and no more."""
        return self._cost("answer").expect(snippets)

    def counting_deadline(self, deadline: Deadline) -> Deadline:
        """When the words of given texts must be counted, or are guessed."""
        return deadline.share(_FOR_COUNTING)

    def ranking_deadline(self, deadline: Deadline, snippets: int) -> Deadline:
        """When a query must be ranked so that there is time to show its hits."""
        most = max(0.0, _MOST_FOR_SNIPPETS * deadline.remaining())
        return deadline.earlier(min(self._cost("snippets").predict(snippets), most))

    def bm25_characters(self, deadline: Deadline, texts: int) -> float:
        """How much of each text of a list may be read by BM25, so that models have time for it."""
        ms = _FOR_BM25 * max(0.0, deadline.remaining())
        return self._cost("bm25").size_within(ms) / max(1, texts)

    def scoring_deadline(self, deadline: Deadline, candidates: int) -> Deadline:
        """When so many candidates must be scored so that there is time to sort them."""
        kept = self._cost("sorting").predict(candidates)
        return deadline.earlier(kept + spare_ms(deadline.remaining()))

    def stored_deadline(self, deadline: Deadline) -> Deadline:
        """When stored documents must be scored, so that there is time to encode others."""
        return deadline.share(_FOR_STORED)

    def score(
        self,
        score: Callable[[int, int], NDArray[np.float32]],
        sizes: NDArray[np.floating],
        cost: CostModel,
        deadline: Deadline,
        most_at_once: float,
        *,
        stops: bool = False,
    ) -> Scored:
        """`score(start, stop)` for as many candidates as the time allows, from the first on, in
        pieces; no piece begins that is predicted to end too late. Where it `stops`, a piece that
        takes all that is kept for what nobody can predict ends without a score; so a last candidate
        is tried that is expected to need some of that."""
        values: list[NDArray[np.float32]] = []
        start = 0
        left = deadline.remaining()
        longest, spare = min(_LONGEST_MS, _LONGEST_SHARE * left), spare_ms(left)
        # Other clocks may stand still while compiled code runs, which looks at this one alone.
        stops = stops and self.clock is now
        late = deadline.earlier(-spare) if stops else NEVER
        while start < len(sizes):
            rest = sizes[start:]
            left = deadline.remaining()
            count = _next_piece(rest, cost, left, longest, spare, most_at_once, stops)
            if count == 0:
                if start == 0:
                    cost.relax()
                break
            began = self.clock()
            try:
                with ending(late):
                    values.append(score(start, start + count))
            except LateError:
                if late is NEVER or must_end().has_passed():  # all that this is a part of must end
                    raise
                sizes = sizes[:start]  # what comes behind it has to do without, too
            size, took = float(rest[:count].sum()), self.clock() - began
            # One that was stopped would have taken longer.
            cost.learn(size, took if len(sizes) > start else max(took, cost.expect(size)))
            start += count
        found = np.concatenate([np.empty(0, np.float32), *values])
        return Scored(len(found), found)


def spare_ms(left: float) -> float:
    """Of the time left for scoring, what is kept for what no prediction knows of."""
    return min(_SPARE_OF_SCORING * left, _MOST_SPARE_MS)


def _next_piece(
    sizes: NDArray[np.floating],
    cost: CostModel,
    left: float,
    longest: float,
    spare: float,
    most_at_once: float,
    stops: bool,
) -> int:
    """How many candidates come next; none when the next one alone would end too late, for which
    there is some grace if only the margin says so. One that stops before it is late may try all of
    the time that is kept."""
    largest = max(1, int(np.searchsorted(np.cumsum(sizes), most_at_once, side="right")))
    if left == float("inf"):
        return largest
    if _WORTH_ITS_START * cost.predict(0) > left:  # then the rest is used as one piece
        return min(cost.fitting(sizes, left), largest)
    in_piece = cost.fitting(sizes, min(_PIECE * left, longest))
    expected, predicted = cost.expect(float(sizes[0])), cost.predict(float(sizes[0]))
    if stops:
        fits = expected <= left + spare
    else:
        fits = expected <= left and predicted <= left + _FOR_MARGIN * spare
    return min(in_piece, largest) or int(fits)
