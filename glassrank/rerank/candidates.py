"""Scores one query's candidates in chunks, within a deadline, passage by passage.

The first passages of all documents come first, then the second ones, and so on: where time is
short, every document is scored once before any is scored again, and a ranking is not worse than if
documents were cut.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import NEVER, Deadline, LateError
from glassrank.models.io.model_folder import Passages
from glassrank.models.model import Floats, Ints, aggregate_passages
from glassrank.rerank.scheduler import CostModel, Scheduler


class PassageList(NamedTuple):
    """Passages in the order in which they are scored."""

    docs: Ints  # (n,) document, as a place among the candidates
    numbers: Ints  # (n,) which of the document's passages, from 0 on
    sizes: NDArray[np.floating]  # (n,) about how many tokens are read: what the cost goes by


class CandidateScorer(Protocol):
    """One query's candidates: stored (`StoredScorer`), or encoded on the fly (`TextScorer`)."""

    cost: CostModel
    """Of scoring passages, by their sizes."""
    max_chunk: float
    """The largest size of a chunk without a budget."""
    is_interruptible: bool
    """Whether `score` looks at its deadline several times within a passage."""
    encodes: bool
    """Whether it encodes documents on the fly."""
    first_stage: Floats
    """(n,) what the first stage adds to each document's score."""

    def first_passages(self) -> PassageList:
        """The first passages of all documents."""

    def further_passages(self, docs: int) -> PassageList | None:
        """The next passages of the first so many documents; None when there are no more."""

    def score(self, passages: PassageList, deadline: Deadline) -> Floats:
        """A score for each passage; -inf where it turns out not to exist."""

    def spans(self, docs: Ints, numbers: Ints) -> Ints:
        """(n, 2) characters of one passage of each document; -1 where it is the whole text."""

    def is_cut(self, docs: int) -> NDArray[np.bool_]:
        """(docs,) whose text goes on after the passages that were found."""


class ScoredDocs(NamedTuple):
    """The candidates that were scored, and what was read of them."""

    places: Ints  # (n,) among all candidates, ascending
    scores: Floats  # (n,)
    passages: Ints  # (n,) the number of the best passage
    spans: Ints  # (n, 2) its characters; -1 where it is the whole text
    truncated: NDArray[np.bool_]  # (n,) whether something was not read
    further: Floats  # (n,) of the score, what passages other than the best add
    num_encoded: int = 0
    """How many were encoded on the fly."""
    missing: tuple[str, ...] = ()
    """Shards that have not answered."""


def merge_scored(parts: Sequence[ScoredDocs], missing: tuple[str, ...] = ()) -> ScoredDocs:
    """Parts of the same candidates as one, by ascending places."""
    order = np.argsort(np.concatenate([part.places for part in parts]))
    columns = zip(*(part[:6] for part in parts), strict=True)
    merged: list[Any] = [np.concatenate(column)[order] for column in columns]
    num_encoded = sum(part.num_encoded for part in parts)
    return ScoredDocs(*merged)._replace(num_encoded=num_encoded, missing=missing)


class CandidateGroup:
    """Candidates with one scorer, and their scores so far."""

    def __init__(self, scorer: CandidateScorer, places: Ints | None = None) -> None:
        """`places` of these among all candidates; all of them, if not given."""
        self.scorer = scorer
        self.passages = scorer.first_passages()
        self.places = np.arange(len(self.passages.docs)) if places is None else places
        self._first = np.empty(0, np.float32)
        self._further: list[tuple[Floats, PassageList]] = []

    @property
    def is_scored(self) -> bool:
        """Whether all first passages are."""
        return len(self._first) == len(self.passages.docs)

    def score_first(
        self, scheduler: Scheduler, deadline: Deadline, abort_at: Deadline = NEVER
    ) -> None:
        """Scores first passages, from where it stopped before. Raises a LateError at `abort_at`."""
        scores = self._score(self.passages, len(self._first), scheduler, deadline, abort_at)
        self._first = np.concatenate([self._first, scores])

    def score_further(
        self, scheduler: Scheduler, deadline: Deadline, abort_at: Deadline = NEVER
    ) -> None:
        """Scores further passages, once all documents have a score."""
        is_late = len(self._first) < len(self.passages.docs)
        while (more := self.scorer.further_passages(len(self._first))) is not None:
            # Without time for any, the scheduler would take its prediction for a wrong one.
            needs = self.scorer.cost.predict(float(more.sizes[0]))
            is_late = is_late or needs > deadline.remaining()
            scores = np.empty(0, np.float32)
            if not is_late:
                scores = self._score(more, 0, scheduler, deadline, abort_at)
            self._further.append((scores, more))
            if len(scores) < len(more.docs):
                return

    def _score(
        self,
        passages: PassageList,
        start: int,
        scheduler: Scheduler,
        deadline: Deadline,
        abort_at: Deadline,
    ) -> Floats:
        scorer, scores = self.scorer, [np.empty(0, np.float32)]
        for chunk in scheduler.chunks(
            passages.sizes,
            scorer.cost,
            deadline,
            scorer.max_chunk,
            start=start,
            is_interruptible=scorer.is_interruptible,
        ):
            some = slice(chunk.start, chunk.stop)
            rows = PassageList(passages.docs[some], passages.numbers[some], passages.sizes[some])
            until = min(chunk.deadline, abort_at, key=Deadline.remaining)
            try:
                scores.append(scorer.score(rows, until))
            except LateError:
                if abort_at.has_passed():
                    raise
                chunk.is_late = True
        return np.concatenate(scores)

    def scored_docs(self, settings: Passages) -> ScoredDocs:
        """The documents that have a score, by their best passages."""
        scores, depth = self._first, len(self._first)
        docs, numbers = np.arange(depth), np.zeros(depth, np.int64)
        truncated, best = self.scorer.is_cut(depth), scores
        if self._further:
            columns = [(scores, docs, numbers)]
            for found, more in self._further:
                exists = np.flatnonzero(np.isfinite(found))
                columns.append((found[exists], more.docs[exists], more.numbers[exists]))
                truncated[more.docs[len(found) :]] = True
            all_scores, owners, all_numbers = map(np.concatenate, zip(*columns, strict=True))
            first_stage = self.scorer.first_stage[:depth]
            scores, rows = aggregate_passages(
                all_scores, owners, first_stage, settings.best, settings.first
            )
            best, numbers = all_scores[rows], all_numbers[rows]
        return ScoredDocs(
            self.places[:depth],
            scores,
            numbers,
            self.scorer.spans(docs, numbers),
            truncated,
            scores - best,
            depth if self.scorer.encodes else 0,
        )
