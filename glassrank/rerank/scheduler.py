"""The scheduler: how the time of a query is divided, and which chunk of candidates still fits.

Every rule that divides time is here: what is reserved for later steps, what is reserved for what
no prediction knows of, and how large a chunk may be. What work costs on this machine is learned
while it runs, by a `CostModel`.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.threads import num_threads
from glassrank.deadline import NEVER, Clock, Deadline, now
from glassrank.rerank.adaptive import FIRST_ROUND

_DECAY = 0.99
"""Weight of earlier observations at each new one: about the last hundred count."""
TRUSTED = 4.0
"""Work that takes longer than this many predictions was interrupted, and counts as no more than
that: one pause of the machine does not spoil later predictions."""
_SLOWNESS_RATE = 0.2
"""How fast predictions follow a machine that is slower or faster for a while."""
_STRETCH_RATE = 0.5
_MARGIN_RISE, _MARGIN_FALL = 0.3, 0.03
"""How fast the safety margin rises when work runs over it, and falls otherwise: being late is worse
than stopping early, so one late chunk weighs as much as ten others."""

_LIKELY_SIZE = 256.0
_SHORTEST_MS = 0.1


class CostModel:
    """base + rate * size, by least squares over observations, with more weight for newer ones.

    A prediction is this line, times how slow the machine is now, plus a safety margin by which work
    has lately run over it.

    >>> cost = CostModel(base=1.0, rate=0.5)
    >>> cost.predict(10)
    6.0
    >>> cost.fitting(np.array([4.0, 4.0, 4.0]), within=5.5)
    2
    """

    def __init__(self, base: float = 0.0, rate: float = 0.0) -> None:
        self.base = base
        self.rate = rate
        self.slowness = 1.0
        """Time that work takes now, as a share of the line."""
        self.margin = 0.0
        """How far work runs over that, as a share of it."""
        self.stretch = 1.0
        """Time of many chunks in a row, as a share of their predictions: here a pause counts in
        full."""
        self._lock = threading.Lock()  # threads share a cost model
        self._weight = self._size = self._square = self._time = self._product = 0.0
        if base or rate:  # the initial guess counts as two observations
            for size in (0.0, _LIKELY_SIZE):
                self._add(size, base + rate * size)

    def predict(self, size: float) -> float:
        """Predicted milliseconds for work of this size, with the safety margin."""
        return (self.base + self.rate * size) * self.slowness * (1 + self.margin)

    def expect(self, size: float) -> float:
        """Expected milliseconds, without the margin."""
        return (self.base + self.rate * size) * self.slowness

    def fitting(self, sizes: NDArray[np.floating], within: float) -> int:
        """How many of these, from the first on, fit in this time as one chunk."""
        line = self.base + self.rate * np.cumsum(sizes)
        predicted = line * self.slowness * (1 + self.margin)
        return int(np.searchsorted(predicted, within, side="right"))

    def size_within(self, ms: float) -> float:
        """The size of a chunk that is predicted to take so long."""
        if self.rate <= 0 or ms == float("inf"):
            return float("inf")
        line = ms / (self.slowness * (1 + self.margin))
        return max(0.0, (line - self.base) / self.rate)

    def learn(self, size: float, took: float) -> None:
        """Work of this size took so many milliseconds."""
        with self._lock:
            line = self.base + self.rate * size
            if self._weight and line > 0:
                took = min(took, TRUSTED * line)
                over = min(1.0, max(0.0, took / (line * self.slowness) - 1))
                rate = _MARGIN_RISE if over > self.margin else _MARGIN_FALL
                self.margin += rate * (over - self.margin)
                self.slowness += _SLOWNESS_RATE * (took / line - self.slowness)
            self._add(size, took)
            self._fit()

    def learn_stretch(self, predicted: float, took: float) -> None:
        """Chunks that were predicted to take so long together took so many milliseconds."""
        if predicted > 0:
            with self._lock:
                self.stretch += _STRETCH_RATE * (took / predicted - self.stretch)

    def relax(self) -> None:
        """Lowers predictions a little when there was no time to try. They change only with new
        observations: a slow moment would otherwise spoil them for good."""
        with self._lock:
            self.margin *= 1 - _MARGIN_FALL
            self.slowness += _MARGIN_FALL * (1 - self.slowness)
            self.stretch += _MARGIN_FALL * (1 - self.stretch)

    def _add(self, size: float, took: float) -> None:
        # Relative errors count: otherwise a few long chunks would drown the short ones, which say
        # what an almost empty chunk costs.
        weight = 1 / max(took, _SHORTEST_MS) ** 2
        self._weight = _DECAY * self._weight + weight
        self._size = _DECAY * self._size + weight * size
        self._square = _DECAY * self._square + weight * size * size
        self._time = _DECAY * self._time + weight * took
        self._product = _DECAY * self._product + weight * size * took

    def _fit(self) -> None:
        spread = self._weight * self._square - self._size**2
        if spread > 1e-6 * self._square * self._weight:
            rate = (self._weight * self._product - self._size * self._time) / spread
            base = (self._time - rate * self._size) / self._weight
            if rate > 0 and base >= 0:
                self.base, self.rate = base, rate
                return
        # All sizes are equal, or the line falls: everything goes by size.
        if self._size > 1e-6 * self._weight:
            self.base, self.rate = 0.0, self._time / self._size
        else:
            self.base, self.rate = self._time / self._weight, 0.0


Work = Literal["sending", "response", "snippets", "sorting", "bm25", "terms", "vectors"]
"""Work besides encoding and scoring: sending a response, building one without its scoring, its
titles and snippets, sorting hits, BM25 over a list of texts, finding documents by terms, and by
vectors."""

_RESPONSE_RESERVE, _MAX_RESPONSE_RESERVE = 0.06, 0.25
"""Shares of a request's budget: reserved for delays that nobody can predict, such as other
programs; and the most that is reserved in all, so that some time is left to answer and to learn."""
_TOKEN_COUNTING_SHARE = 0.2
"""Of a request's time, for counting the tokens of its texts."""
_MAX_SNIPPETS_SHARE = 0.5
"""Of a query's time, the most that is reserved for titles and snippets."""
_LIST_BM25_SHARE = 0.6
"""Of a list's time, for ordering its texts by BM25 before models score them."""
_VECTORS_SHARE = 0.25
"""Of the time left when the query is encoded, what finding documents by vectors may always take."""
_BM25_MS_PER_CHARACTER = 5e-5
"""Until it is learned."""
_SCORING_RESERVE, _MAX_SCORING_RESERVE_MS = 0.08, 5.0
"""Of the time for scoring, the share that is reserved for what no prediction knows of."""
_MARGIN_FROM_RESERVE = 0.5
"""Of that reserve, what the last candidate may use: its prediction has a safety margin already."""
_FIRST_ROUND_SHARE = 0.5
"""Of the candidates that there is time for, those of the first round of adaptive re-ranking."""
_STORED_SHARE = 0.5
"""Of the time for scoring, for stored documents before missing ones are encoded on the fly."""
_CHUNK_SHARE = 1 / 3
"""Of the time left, for one chunk: a wrong prediction is noticed in time to make up for it."""
_MAX_CHUNK_MS, _MAX_CHUNK_SHARE = 8.0, 0.25
"""Limits of a chunk where there is a budget: milliseconds, and share of the whole scoring time."""
_MIN_CHUNK_COSTS = 4.0
"""With less time left than this many fixed costs of a chunk, the rest is one chunk."""


@dataclass
class Chunk:
    """Candidates to score next, between two looks at the clock."""

    start: int
    stop: int
    deadline: Deadline
    """Scoring that can be interrupted ends with a `LateError` here."""
    is_late: bool = False
    """The caller sets it when scoring was interrupted: no further chunk comes."""


class Scheduler:
    """Learns what each kind of work costs here, and derives deadlines from it."""

    def __init__(self, clock: Clock = now) -> None:
        self.clock = clock
        """Times the work; a deadline may have a clock of its own."""
        self._costs: dict[Work, CostModel] = {"bm25": CostModel(rate=_BM25_MS_PER_CHARACTER)}

    def _cost(self, work: Work) -> CostModel:
        return self._costs.setdefault(work, CostModel())

    def learn(self, work: Work, size: float, took: float) -> None:
        """Work of this size took so many milliseconds."""
        self._cost(work).learn(size, took)

    def response_deadline(self, arrived: float, budget_ms: float) -> Deadline:
        """When a request's response must be ready to be sent."""
        reserve = self._cost("sending").predict(1) + _RESPONSE_RESERVE * budget_ms
        reserve = min(reserve, _MAX_RESPONSE_RESERVE * budget_ms)
        return Deadline(self.clock, arrived + budget_ms - reserve)

    def min_response_ms(self, snippets: int) -> float:
        """Milliseconds for a response with so many snippets from the first stage alone."""
        return self._cost("response").expect(snippets)

    def counting_deadline(self, deadline: Deadline) -> Deadline:
        """When counting the tokens of given texts must end; the rest are estimated."""
        return deadline.share(_TOKEN_COUNTING_SHARE)

    def ranking_deadline(self, deadline: Deadline, snippets: int) -> Deadline:
        """When a query must be ranked, to leave time for so many snippets."""
        most = max(0.0, _MAX_SNIPPETS_SHARE * deadline.remaining())
        return deadline.earlier(min(self._cost("snippets").predict(snippets), most))

    def bm25_characters(self, deadline: Deadline, texts: int) -> float:
        """How many characters of each text of a list BM25 may read, to leave time for models."""
        ms = _LIST_BM25_SHARE * max(0.0, deadline.remaining())
        return self._cost("bm25").size_within(ms) / max(1, texts)

    def has_time_for_vectors(self, left: float, docs: int, scoring_ms: float) -> bool:
        """Whether a query that has so many milliseconds left compares so many vectors, too: if they
        take a small share, or leave time to score as many documents as are worth it."""
        cost = self._cost("vectors")
        if cost.predict(docs) <= max(_VECTORS_SHARE * left, left - scoring_ms):
            return True
        cost.relax()
        return False

    def ms_after_terms(self, deadline: Deadline, docs: int, candidates: int) -> float:
        """Milliseconds that are left for scoring so many candidates once terms have found them."""
        left = self.scoring_deadline(deadline, candidates).remaining()
        return left - self._cost("terms").expect(docs)

    def scoring_deadline(self, deadline: Deadline, candidates: int) -> Deadline:
        """When so many candidates must be scored, to leave time for sorting them."""
        sorting = self._cost("sorting").predict(candidates)
        return deadline.earlier(sorting + scoring_reserve_ms(deadline.remaining()))

    def first_round(self, cost: CostModel, mean_size: float, deadline: Deadline) -> int:
        """How many candidates are scored before the best of them bring in their neighbours: half of
        those that there is time for, and no more than are enough."""
        fitting = cost.size_within(max(0.0, deadline.remaining())) / mean_size
        return max(1, int(min(FIRST_ROUND, _FIRST_ROUND_SHARE * fitting)))

    def stored_deadline(self, deadline: Deadline) -> Deadline:
        """When stored documents must be scored, to leave time for encoding others."""
        return deadline.share(_STORED_SHARE)

    def chunks(
        self,
        sizes: NDArray[np.floating],
        cost: CostModel,
        deadline: Deadline,
        max_size: float,
        *,
        start: int = 0,
        is_interruptible: bool = False,
    ) -> Iterator[Chunk]:
        """Chunks of candidates from `start` on, while the next one is predicted to end in time.
        The time between two chunks is learned as the cost of the first.

        Scoring that `is_interruptible` may use the reserve: it stops where that ends.
        """
        left = deadline.remaining()
        longest, reserve = min(_MAX_CHUNK_MS, _MAX_CHUNK_SHARE * left), scoring_reserve_ms(left)
        # An interrupted model reads the real clock; a clock of a test may stand still meanwhile.
        is_interruptible = is_interruptible and self.clock is now
        hard_deadline = deadline.earlier(-reserve) if is_interruptible else NEVER
        begin = start
        while start < len(sizes):
            rest = sizes[start:]
            count = _next_count(
                rest, cost, deadline.remaining(), longest, reserve, max_size, is_interruptible
            )
            if count == 0:
                if start == begin:
                    cost.relax()
                return
            chunk = Chunk(start, start + count, hard_deadline)
            began = self.clock()
            yield chunk
            size, took = float(rest[:count].sum()), self.clock() - began
            if chunk.is_late:  # without the interruption it would have taken longer
                cost.learn(size, max(took, cost.expect(size)))
                return
            cost.learn(size, took)
            start += count


def scoring_reserve_ms(left: float) -> float:
    """Of the time left for scoring, what is reserved for what no prediction knows of."""
    return min(_SCORING_RESERVE * left, _MAX_SCORING_RESERVE_MS)


def _next_count(
    sizes: NDArray[np.floating],
    cost: CostModel,
    left: float,
    longest: float,
    reserve: float,
    max_size: float,
    is_interruptible: bool,
) -> int:
    """How many candidates the next chunk has; 0 when even one would end too late."""
    largest = max(1, int(np.searchsorted(np.cumsum(sizes), max_size, side="right")))
    if left == float("inf"):
        return largest
    if _MIN_CHUNK_COSTS * cost.predict(0) > left:
        return min(cost.fitting(sizes, left), largest)
    fitting = cost.fitting(sizes, min(_CHUNK_SHARE * left, longest))
    expected, predicted = cost.expect(float(sizes[0])), cost.predict(float(sizes[0]))
    if is_interruptible:
        fits_alone = expected <= left + reserve
        # One thread encodes one text: with fewer texts than threads, some threads would be idle.
        abreast = sizes[: num_threads()]
        if fitting < len(abreast) and cost.expect(float(abreast.sum())) <= left + reserve:
            return min(len(abreast), largest)
    else:
        fits_alone = expected <= left and predicted <= left + _MARGIN_FROM_RESERVE * reserve
    return min(fitting, largest) or int(fits_alone)
