"""Re-rank a run: the candidates of many queries, as another system wrote them."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.rerank.pipeline import Pipeline
from glassrank.types import Ranking, Run


def rerank_run(
    pipeline: Pipeline, run: Run, queries: Mapping[str, str]
) -> Iterator[tuple[str, Ranking]]:
    """Re-ranks each query's candidates; those beyond the depth keep their order, below."""
    for query_id, doc_ids, scores in run.items():
        yield (
            query_id,
            pipeline.rerank(queries[query_id], *find_candidates(pipeline.index, doc_ids, scores)),
        )


def find_candidates(
    index: Index,
    doc_ids: Sequence[str],
    scores: NDArray[np.float64],
    depth: int | None = None,
    run: str = "the run",
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The first `depth` candidates of one query, in trec_eval's order."""
    from glassrank.corpus.runs import trec_order  # `rank` does not wait for the file readers

    order = trec_order(doc_ids, scores)[:depth]
    numbers = np.array([index.snapshot.find(doc_ids[row]) for row in order], np.int64)
    if (numbers < 0).any():
        missing = doc_ids[order[np.argmax(numbers < 0)]]
        raise InputError(
            f"{index.path} has no document {missing!r}, which {run} has; "
            "give the index that the run was made from"
        )
    return numbers, scores[order]
