"""The second stage for a whole run."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.rank.pipeline import Pipeline
from glassrank.types import Ranking, Run


def rerank_run(
    pipeline: Pipeline, run: Run, queries: Mapping[str, str]
) -> Iterator[tuple[str, Ranking]]:
    """Each query's candidates in the model's order, as deep as the pipeline goes; the rest keep the
    first stage's order below them, with scores that say so."""
    for query_id, docs, first in run.items():
        order = np.argsort(-first, kind="stable")
        numbers = np.array([_number(pipeline, docs[place]) for place in order], np.int64)
        yield query_id, pipeline.rerank(queries[query_id], numbers, first[order])


def as_row(query_id: str, ranking: Ranking) -> tuple[str, list[str], NDArray[np.float64]]:
    """As `Run.from_rows` takes it."""
    return query_id, [hit.doc_id for hit in ranking], np.array([hit.score for hit in ranking])


def _number(pipeline: Pipeline, doc_id: str) -> int:
    number = pipeline.index.snapshot.find(doc_id)
    if number < 0:
        raise InputError(
            f"{pipeline.index.path} has no document {doc_id!r}, which the run has; "
            "give the index that the run came from"
        )
    return number
