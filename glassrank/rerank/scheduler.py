"""The planner of time: by when each piece of work must be done, and what may still begin.

Every rule that divides time stands here: what is kept for the work that follows, what is kept for
what nobody can predict, how large a piece of scoring may be, and what a request may take while
others wait. Pipelines and the service ask; what work costs is learned while it runs.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Clock, Deadline, LateError, ending, must_end, now
from glassrank.rerank.cost_model import TRUSTED, CostModel

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
_TO_SHARE = 0.7
"""Of the time that requests have beyond what they need, while some wait: one that is late makes all
behind it late."""
_MOST_NEEDED = 1 / 3
"""Of its time, that a request can be said to need."""
_NEW = 0.1
"""How much the newest request says about how long they take."""


class Scored(NamedTuple):
    """Scores of the first `depth` candidates."""

    depth: int
    values: NDArray[np.float32]  # (depth,)


class Planner:
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

    def answer_by(self, arrived: float, budget_ms: float) -> Deadline:
        """When a request's answer must be ready to be sent."""
        kept = self._cost("sending").predict(1) + _SPARE_OF_ANSWER * budget_ms
        return Deadline(self.clock, arrived + budget_ms - min(kept, _MOST_OF_ANSWER * budget_ms))

    def least_for_answer(self, snippets: int) -> float:
        """Milliseconds without which no answer of so many snippets is of any use: what the first
        stage finds, and no more."""
        return self._cost("answer").expect(snippets)

    def counted_by(self, deadline: Deadline) -> Deadline:
        """When the words of given texts must be counted, or are guessed."""
        return deadline.share(_FOR_COUNTING)

    def ranked_by(self, deadline: Deadline, snippets: int) -> Deadline:
        """When a query must be ranked so that there is time to show its hits."""
        most = max(0.0, _MOST_FOR_SNIPPETS * deadline.left())
        return deadline.earlier(min(self._cost("snippets").predict(snippets), most))

    def characters_within(self, deadline: Deadline, texts: int) -> float:
        """How much of each text of a list may be read by BM25, so that models have time for it."""
        ms = _FOR_BM25 * max(0.0, deadline.left())
        return self._cost("bm25").size_within(ms) / max(1, texts)

    def scored_by(self, deadline: Deadline, candidates: int) -> Deadline:
        """When so many candidates must be scored so that there is time to sort them."""
        kept = self._cost("sorting").predict(candidates)
        return deadline.earlier(kept + spare_ms(deadline.left()))

    def stored_by(self, deadline: Deadline) -> Deadline:
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
        left = deadline.left()
        longest, spare = min(_LONGEST_MS, _LONGEST_SHARE * left), spare_ms(left)
        # Other clocks may stand still while compiled code runs, which looks at this one alone.
        stops = stops and self.clock is now
        late = deadline.earlier(-spare) if stops else NEVER
        while start < len(sizes):
            rest = sizes[start:]
            left = deadline.left()
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
                if late is NEVER or must_end().passed():  # all that this is a part of must end
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


class Turn:
    """One request's place before some threads, and then at one of them."""

    def __init__(self, deadline: Deadline, needs_ms: float) -> None:
        self.deadline = deadline
        self.needs_ms = needs_ms
        """The least that is of any use to it."""
        self.began = 0.0
        self.granted = deadline.at
        """By when it must end, as those who wait were when somebody last looked: in `seen`."""
        self.seen: tuple[Turn, ...] = ()


class Load:
    """What some threads have promised to those who wait for them: how long until it is one's turn,
    and how much of its time a request may take, so that those behind it have any.

    What a request needs at least is kept for everybody who waits, and what is left of their time
    is shared evenly. So searches get less deep, down to what the first stage finds, before any is
    refused; and one that runs already gets less deep, too, when others come.
    """

    def __init__(self, threads: int, clock: Clock = now) -> None:
        self.threads = threads
        self.clock = clock
        self.usual_ms = 0.0
        """How long a request has lately taken, once it began: what one needs of which nobody knows
        more."""
        self.waiting: tuple[Turn, ...] = ()  # replaced as a whole: threads look at it as they run
        self._running: set[Turn] = set()

    @property
    def count(self) -> int:
        """Requests that run or wait."""
        return len(self._running) + len(self.waiting)

    def turn(self, deadline: Deadline, needs_ms: float | None) -> Turn:
        """For a request, which does not wait yet."""
        needs_ms = self.usual_ms if needs_ms is None else needs_ms
        # What says that hardly one request fits into its time is not believed: it would be refused
        # as soon as there is another one, and nothing better be learned.
        return Turn(deadline, min(needs_ms, _MOST_NEEDED * max(0.0, deadline.left())))

    def expected_wait(self) -> float:
        """Milliseconds until a thread is likely to be free, if everybody takes what they need."""
        if len(self._running) + len(self.waiting) < self.threads:
            return 0.0
        at = self.clock()
        # One that has had what it needs ends soon, but not at once.
        running = sum(
            max(turn.needs_ms - (at - turn.began), turn.needs_ms / 2) for turn in self._running
        )
        return (running + sum(turn.needs_ms for turn in self.waiting)) / self.threads

    def wait(self, turn: Turn) -> None:
        """It waits, behind all others."""
        self.waiting = (*self.waiting, turn)

    def begin(self, turn: Turn) -> Deadline:
        """A thread begins it; by when it must be done, which is earlier as soon as others come."""
        self.waiting = tuple(other for other in self.waiting if other is not turn)
        turn.began = self.clock()
        self._running.add(turn)
        whole = turn.deadline
        return Deadline(lambda: whole.clock() + whole.at - self._granted(turn), whole.at)

    def _granted(self, turn: Turn) -> float:
        waiting = self.waiting
        if turn.seen is not waiting:
            turn.seen = waiting
            least = turn.began + turn.needs_ms
            end, needed = turn.deadline.at, 0.0
            for place, other in enumerate(waiting, 1):
                needed += other.needs_ms / self.threads
                to_share = _TO_SHARE * max(0.0, other.deadline.at - least - needed)
                end = min(end, least + to_share / (1 + place / self.threads))
            turn.granted = end
        return turn.granted

    def is_in_vain(self, turn: Turn) -> bool:
        """Whether its time is over, and others would be late for it who are not so yet. Where
        everybody is late, as after a pause of the machine, that helps nobody."""
        if not turn.deadline.passed():
            return False
        needed = turn.needs_ms
        for other in self.waiting:
            needed += other.needs_ms
            if 0 < other.deadline.left() < needed / self.threads:
                return True
        return False

    def end(self, turn: Turn, *, done: bool) -> None:
        """It has ended; one that failed says nothing about others."""
        self._running.discard(turn)
        if done:
            took = self.clock() - turn.began
            took = min(took, TRUSTED * self.usual_ms) if self.usual_ms else took
            self.usual_ms += (_NEW if self.usual_ms else 1.0) * (took - self.usual_ms)
