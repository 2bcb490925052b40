"""The words everything else speaks: queries, documents, judgments, runs and rankings.

Field names are those of ir-measures (`query_id`, `doc_id`, `score`, `relevance`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Qrels = dict[str, dict[str, int]]
"""Judgments: query id -> document id -> relevance grade."""


class Query(NamedTuple):
    """What is asked."""

    query_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Doc:
    """One document. `source` says where it comes from: a URL, a file, a module."""

    doc_id: str
    text: str
    title: str = ""
    source: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)


class Qrel(NamedTuple):
    """How well a document answers a query, as somebody judged it."""

    query_id: str
    doc_id: str
    relevance: int


class Hit(NamedTuple):
    """One line of a ranking. `rank` counts from 1. Where there was a second stage, `first_rank` and
    `first_score` say what the first stage thought."""

    rank: int
    doc_id: str
    score: float
    first_rank: int | None = None
    first_score: float | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """The answer to one query, best first.

    `depth` is how many candidates the second stage re-ranked (0: first stage only), of `found`;
    `timing` has the milliseconds of each hop.
    """

    query: str
    hits: tuple[Hit, ...]
    depth: int = 0
    timing: Mapping[str, float] = field(default_factory=dict)
    found: int = 0

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rankings of many queries, in columns: a run has millions of rows.

    Rows `offsets[i]:offsets[i + 1]` belong to `query_ids[i]`. Rows keep the order they came in;
    whoever needs ranks sorts by score.
    """

    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]  # (Q + 1,)
    doc_ids: list[str]  # (rows,)
    scores: NDArray[np.float64]  # (rows,)

    @classmethod
    def from_dict(cls, run: Mapping[str, Mapping[str, float]]) -> "Run":
        """
        >>> Run.from_dict({"q1": {"a": 2.0, "b": 1.0}, "q2": {}}).offsets.tolist()
        [0, 2, 2]
        """
        return cls.from_rows(
            (query_id, docs.keys(), np.fromiter(docs.values(), np.float64, len(docs)))
            for query_id, docs in run.items()
        )

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, Iterable[str], NDArray[np.floating]]]) -> "Run":
        """One (query id, document ids, scores) for each query."""
        query_ids: list[str] = []
        doc_ids: list[str] = []
        offsets, scores = [0], [np.empty(0, np.float64)]
        for query_id, docs, values in rows:
            query_ids.append(query_id)
            doc_ids.extend(docs)
            offsets.append(len(doc_ids))
            scores.append(np.asarray(values, np.float64))
        return cls(tuple(query_ids), np.array(offsets, np.int64), doc_ids, np.concatenate(scores))

    def items(self) -> Iterator[tuple[str, list[str], NDArray[np.float64]]]:
        """(query id, document ids, scores) of each query."""
        for query_id, (start, stop) in zip(
            self.query_ids, pairwise(self.offsets.tolist()), strict=True
        ):
            yield query_id, self.doc_ids[start:stop], self.scores[start:stop]

    def __len__(self) -> int:
        return len(self.query_ids)
