"""From scores of passages to those of documents, in time.

The first passages of all documents come first, then the second ones, and so on: where the time is
short, every document has been looked at once before any is looked at again, and a ranking is not
worse than if documents had been cut.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Deadline
from glassrank.models.passages import Passages, best_passages
from glassrank.rerank.cost_model import CostModel
from glassrank.rerank.scheduler import Scheduler


class Candidates(Protocol):
    """Passages that are scored in pieces."""

    sizes: NDArray[np.floating]
    """About how many words are read to score each: what its cost goes by."""
    docs: NDArray[np.int64]
    """Whose they are: a place among the documents."""
    numbers: NDArray[np.int64]
    """Which of the document's passages, from 0 on."""
    stops: bool
    """Whether scoring looks at `deadline.must_end` while it runs, several times in each passage."""

    def scores(self, start: int, stop: int) -> NDArray[np.float32]:
        """Of those from `start` on, up to `stop`; -inf of one that turns out not to be there."""


class DocCandidates(Protocol):
    """Documents, in passages."""

    shares: NDArray[np.float32]
    """What the first stage adds to each document's score."""

    @property
    def first(self) -> Candidates:
        """The first passages of all."""

    def further(self, docs: int) -> Candidates | None:
        """The next passages of the first so many documents, or None when there are none. To be
        asked for again when these are scored."""

    def spans(
        self, docs: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> NDArray[np.int64]:  # (n, 2)
        """Which characters of its text each document's passage of this number has; -1 where it is
        the whole text."""

    def cut(self, docs: int) -> NDArray[np.bool_]:
        """Of the first so many, whose passages that were found are not all of their text."""


class ScoredDocs(NamedTuple):
    """Which candidates were scored, as places among them in their order, how many of those had to
    be encoded for it, and what of them was read."""

    which: NDArray[np.int64]  # (n,)
    values: NDArray[np.float32]  # (n,)
    live: int
    numbers: NDArray[np.int64]  # (n,) the best passage
    spans: NDArray[np.int64]  # (n, 2) its characters; -1 where it is the whole text
    truncated: NDArray[np.bool_]  # (n,) whether something was not read
    further: NDArray[np.float32]  # (n,) of its score, what passages add that are not the best
    missing: tuple[str, ...] = ()  # shards that were asked and have not answered

    def at(self, places: NDArray[np.int64]) -> "ScoredDocs":
        """The same of candidates that are some of others, at these places."""
        return self._replace(which=places[self.which])


class Scoring:
    """Documents that are scored by one model, as far as the time allows."""

    def __init__(
        self,
        candidates: DocCandidates,
        scheduler: Scheduler,
        cost: CostModel,
        at_once: float,
        passages: Passages,
    ) -> None:
        self._candidates = candidates
        self._scheduler = scheduler
        self._cost, self._at_once = cost, at_once
        self._passages = passages
        self._first = [np.empty(0, np.float32)]
        self._further: list[tuple[NDArray[np.float32], Candidates]] = []
        self.depth = 0
        """Documents that have a score."""

    def first(self, due: Deadline) -> None:
        """First passages, from where it stopped before."""
        values = self._scored(self._candidates.first, self.depth, due)
        self._first.append(values)
        self.depth += len(values)

    def further(self, due: Deadline) -> None:
        """The others, of documents that have a score already, if all have one."""
        late = self.depth < len(self._candidates.first.sizes)
        while (more := self._candidates.further(self.depth)) is not None:
            # The scheduler takes it for a spoilt prediction if there is no time for anything.
            late = late or self._cost.predict(float(more.sizes[0])) > due.remaining()
            values = self._first[0] if late else self._scored(more, 0, due)
            self._further.append((values, more))
            if len(values) < len(more.sizes):
                return

    def _scored(self, some: Candidates, begin: int, due: Deadline) -> NDArray[np.float32]:
        def scores(start: int, stop: int) -> NDArray[np.float32]:
            return some.scores(begin + start, begin + stop)

        sizes = some.sizes[begin:]
        own = self._cost, due, self._at_once
        return self._scheduler.score(scores, sizes, *own, stops=some.stops).values

    def placed(self, *, live: bool) -> ScoredDocs:
        """What came of it."""
        values, own = np.concatenate(self._first), np.arange(self.depth)
        numbers = np.zeros(self.depth, np.int64)
        truncated = self._candidates.cut(self.depth)
        if self._further:
            columns = [(values, own, numbers)]
            for found, some in self._further:
                there = np.isfinite(found)
                columns.append(
                    (
                        found[there],
                        some.docs[: len(found)][there],
                        some.numbers[: len(found)][there],
                    )
                )
                if len(found) < len(some.docs):
                    truncated[some.docs[len(found) :]] = True
            all_values, docs, all_numbers = (
                np.concatenate(column) for column in zip(*columns, strict=True)
            )
            shares = self._candidates.shares[: self.depth]
            count, first = self._passages.best, self._passages.first
            values, places = best_passages(all_values, docs, shares, count, first)
            best, numbers = all_values[places], all_numbers[places]
        else:
            best = values
        spans = self._candidates.spans(own, numbers)
        lives = self.depth if live else 0
        return ScoredDocs(own, values, lives, numbers, spans, truncated, values - best)
