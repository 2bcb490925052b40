"""The judged queries of a run with the candidates that its models re-rank."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.cli import console
from glassrank.corpus import read_qrels, read_queries, read_run
from glassrank.errors import InputError
from glassrank.rank.pipeline import candidates_of
from glassrank.retrieve import Index
from glassrank.types import Qrels, Run


class Candidates(NamedTuple):
    """What one query's second stage is given, best first."""

    query_id: str
    text: str
    numbers: NDArray[np.int64]  # (D,), in the index
    scores: NDArray[np.float64]  # (D,), the first stage's


@dataclass(frozen=True)
class JudgedQueries:
    run: Run
    qrels: Qrels
    candidates: list[Candidates]

    @classmethod
    def read(
        cls, run: Path, qrels: str, queries: str, index: Index, depth: int | None, *, quiet: bool
    ) -> "JudgedQueries":
        """`depth` is the most candidates for a query; all of the run's if it is None."""
        rows, judgments = read_run(run), read_qrels(qrels)
        texts = {query.query_id: query.text for query in read_queries(queries)}
        found = []
        for query_id, doc_ids, scores in rows.items():
            if query_id not in judgments:  # it would change nothing
                continue
            if query_id not in texts:
                raise InputError(
                    f"{queries} has no query {query_id!r}, which {run} has; give its queries"
                )
            rows_here = candidates_of(index, doc_ids, scores, depth, run=str(run))
            found.append(Candidates(query_id, texts[query_id], *rows_here))
        if not found:
            raise InputError(f"no query of {run} is judged in {qrels}; give its judgments")
        if len(found) < len(judgments):
            console.say(
                f"{len(judgments) - len(found):,} of the {len(judgments):,} queries of {qrels} "
                f"are not in {run} and count 0",
                quiet=quiet,
            )
        return cls(rows, judgments, found)

    @property
    def deepest(self) -> int:
        return max(len(one.numbers) for one in self.candidates)
