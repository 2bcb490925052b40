"""Runs of somebody else's that training goes by: a first stage's candidates, a teacher's scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.types import Query, Run


def read_runs(base: Path, names: Sequence[str]) -> Run | None:
    """All of these files as one run; None where none is named."""
    from glassrank.corpus import read_run

    if not names:
        return None
    rows = [row for name in names for row in read_run(base / name).items()]
    queries = [query_id for query_id, _, _ in rows]
    if len(set(queries)) < len(queries):
        twice = next(query_id for query_id in queries if queries.count(query_id) > 1)
        raise InputError(f"{', '.join(names)}: query {twice!r} is in two of the runs; keep one")
    return Run.from_rows(rows)


def given_candidates(
    run: Run, queries: Sequence[Query], depth: int, known: Mapping[str, int]
) -> Run:
    """What a run has for these queries, best first; a query that it lacks has found nothing."""
    lists = {query_id: (docs, scores) for query_id, docs, scores in run.items()}
    rows = []
    for query in queries:
        docs, scores = lists.get(query.query_id, ([], np.empty(0)))
        order = np.argsort(-scores, kind="stable")[:depth]
        ranked = [docs[place] for place in order.tolist()]
        missing = next((doc for doc in ranked if doc not in known), None)
        if missing is not None:
            raise InputError(
                f"candidates.run has document {missing!r} for query {query.query_id!r}, which the "
                "collection has not; give the run of these documents"
            )
        rows.append((query.query_id, ranked, scores[order]))
    if not any(docs for _, docs, _ in rows):
        raise InputError("candidates.run has none of the queries; give the run of these queries")
    return Run.from_rows(rows)


def scores_by_query(run: Run) -> dict[str, dict[str, float]]:
    """Query id -> document id -> score."""
    return {q: dict(zip(docs, scores.tolist(), strict=True)) for q, docs, scores in run.items()}


def teacher_scores(
    taught: Mapping[str, Mapping[str, float]], query_id: str, docs: Sequence[str]
) -> NDArray[np.float64]:
    """Beside `docs`; the lowest of the query's where the teacher was not asked."""
    if query_id not in taught:
        raise InputError(
            f"candidates.teacher_scores has nothing for query {query_id!r}; add its scores, or "
            "take the query out"
        )
    mine = taught[query_id]
    lowest = min(mine.values())
    return np.array([mine.get(doc, lowest) for doc in docs], np.float64)
