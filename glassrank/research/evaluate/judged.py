"""A run joined with judgments: of each query the ranks and grades of relevant documents, the ideal
grades, and the ranks of documents judged as not relevant, however deep the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from glassrank.corpus.runs import trec_order
from glassrank.errors import InputError
from glassrank.types import Qrels, Run

ScoredList = tuple[list[str], NDArray[np.float64]]
"""Document ids and scores of one query."""

NOTHING: ScoredList = ([], np.empty(0, np.float64))

UNJUDGED = -1
"""The grade of a document without judgment. trec_eval treats negative grades as the same thing."""


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The ranks of judged documents, for each judged query.

    H is the most relevant documents that a query found, J the most that a query has.
    """

    query_ids: tuple[str, ...]
    ranks: NDArray[np.float64]  # (Q, H), from 1, ascending; inf where a query found fewer
    grades: NDArray[np.int64]  # (Q, H), 0 where a query found fewer
    ideal: NDArray[np.int64]  # (Q, J), all relevant grades, descending; then 0
    retrieved: NDArray[np.int64]  # (Q,), length of each list
    others: NDArray[np.float64]  # (Q, N), ranks of what was judged not relevant; then inf
    judged_others: NDArray[np.int64]  # (Q,), how many such there are, found or not

    @classmethod
    def join(cls, run: Run, qrels: Qrels, judged_only: bool = False) -> "Judged":
        """Queries that the run lacks found nothing; queries without judgments are ignored.

        `judged_only` removes documents without judgment before ranks are counted.

        >>> run = Run.from_dict({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})
        >>> Judged.join(run, {"q": {"a": 0, "c": 1}}).ranks.tolist()
        [[3.0]]
        >>> Judged.join(run, {"q": {"a": 0, "c": 1}}, judged_only=True).ranks.tolist()
        [[2.0]]
        """
        if not qrels:
            raise InputError("the judgments are empty; expected at least one judged query")
        lists = lists_by_query(run)
        ideal = [sorted((g for g in own.values() if g > 0), reverse=True) for own in qrels.values()]
        ranks, grades, retrieved, others = [], [], [], []
        for query_id, judgments in qrels.items():
            doc_ids, scores = lists.get(query_id, NOTHING)
            by_row = np.fromiter(
                map(judgments.get, doc_ids, repeat(UNJUDGED)), np.int64, len(doc_ids)
            )
            _check_no_duplicates(query_id, doc_ids, by_row)
            ranked = by_row[trec_order(doc_ids, scores)]  # (D,)
            if judged_only:
                ranked = ranked[ranked > UNJUDGED]
            relevant = np.flatnonzero(ranked > 0)  # (H,)
            ranks.append(relevant + 1)
            grades.append(ranked[relevant])
            retrieved.append(len(ranked))
            others.append(np.flatnonzero(ranked == 0) + 1)
        return cls(
            tuple(qrels),
            pad_rows(ranks, np.inf, np.float64),
            pad_rows(grades, 0, np.int64),
            pad_rows(ideal, 0, np.int64),
            np.array(retrieved, np.int64),
            pad_rows(others, np.inf, np.float64),
            np.array([sum(g == 0 for g in grades.values()) for grades in qrels.values()], np.int64),
        )


def lists_by_query(run: Run) -> dict[str, ScoredList]:
    """Each query's documents and scores."""
    if np.isnan(run.scores).any():
        raise InputError("the run has a score that is NaN; expected numbers")
    lists = {query_id: (doc_ids, scores) for query_id, doc_ids, scores in run.items()}
    if len(lists) < len(run):
        raise InputError("the run has a query twice; expected one list for each query")
    return lists


def _check_no_duplicates(query_id: str, doc_ids: Sequence[str], grades: NDArray[np.int64]) -> None:
    """A relevant document listed twice would be counted twice, and push a measure above 1."""
    relevant = [doc_ids[row] for row in np.flatnonzero(grades > 0).tolist()]
    if len(set(relevant)) < len(relevant):
        twice = next(doc_id for doc_id in relevant if relevant.count(doc_id) > 1)
        raise InputError(
            f"the run has document {twice!r} twice for query {query_id!r}; expected it once"
        )


Number = TypeVar("Number", np.float64, np.int64)


def pad_rows(
    rows: Sequence[Sequence[int] | NDArray[np.int64]], fill: float, dtype: type[Number]
) -> NDArray[Number]:
    """Rows of different lengths as one array, at least one column wide."""
    out: NDArray[Number] = np.full((len(rows), max(1, *map(len, rows))), fill, dtype)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out
