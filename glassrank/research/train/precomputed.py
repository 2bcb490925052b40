"""Precomputed training data: runs with candidates or teacher scores, and triples as in MS MARCO, of
ids or of texts (`triples.train.small.tsv`), which become candidates of their queries.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.corpus import read_run
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.research.train.config import CandidatesConfig
from glassrank.research.train.texts import TextsOnDisk
from glassrank.storage.files import MAX_ROW_BYTES, read_lines
from glassrank.storage.mapped_arrays import Ragged
from glassrank.types import Query, Run


def read_runs(base: Path, names: Sequence[str]) -> Run | None:
    """Read files as one run; None without files."""
    if not names:
        return None
    rows = [row for name in names for row in read_run(base / name).items()]
    queries = [query_id for query_id, _, _ in rows]
    if len(set(queries)) < len(queries):
        twice = next(query_id for query_id in queries if queries.count(query_id) > 1)
        raise InputError(f"{', '.join(names)}: query {twice!r} is in two of the runs; keep one")
    return Run.from_rows(rows)


def select_candidates(
    run: Run, queries: Sequence[Query], depth: int, known: Mapping[str, int]
) -> Run:
    """A run's candidates of these queries, best first; a missing query has none."""
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
                "collection lacks; give a run over these documents"
            )
        rows.append((query.query_id, ranked, scores[order]))
    if not any(docs for _, docs, _ in rows):
        raise InputError("candidates.run has none of the queries; give a run of these queries")
    return Run.from_rows(rows)


def read_scores(base: Path, names: Sequence[str]) -> dict[str, dict[str, float]] | None:
    """Query id -> document id -> score, from such files."""
    run = read_runs(base, names)
    if run is None:
        return None
    return {q: dict(zip(docs, scores.tolist(), strict=True)) for q, docs, scores in run.items()}


def look_up_scores(
    teacher: Mapping[str, Mapping[str, float]], query_id: str, docs: Sequence[str]
) -> NDArray[np.float64]:
    """The teacher's scores of `docs`; the lowest of the query for missing ones."""
    if query_id not in teacher:
        raise InputError(
            f"candidates.teacher_scores lacks query {query_id!r}; add it, or remove the query"
        )
    mine = teacher[query_id]
    lowest = min(mine.values())
    return np.array([mine.get(doc, lowest) for doc in docs], np.float64)


@dataclass(frozen=True)
class GroupedTriples:
    """Triples by query: each query's documents once, and triples as positions among them."""

    queries: NDArray[np.int64]  # (Q,) those that have triples
    docs: Ragged  # beside queries, in the order of their numbers
    grades: NDArray[np.int64]  # beside docs.values: 1 if relevant in some triple, else -1
    triples: NDArray[np.int32]  # (T, 3) row of queries, places of the two in docs.values


def read_triples(
    path: str | Path, queries: Mapping[str, int], docs: Mapping[str, int]
) -> NDArray[np.int32]:
    """(T, 3): numbers of query, relevant document and other document."""
    flat = np.fromiter(_look_up_ids(Path(path), queries, docs), np.int32)
    if not len(flat):
        raise InputError(f"{path} has no triples; expected lines of query, relevant, other")
    return flat.reshape(-1, 3)


def _look_up_ids(path: Path, queries: Mapping[str, int], docs: Mapping[str, int]) -> Iterator[int]:
    for number, line in read_lines(path, max_bytes=MAX_ROW_BYTES):
        if not line:
            continue
        ids = line.split("\t")
        if len(ids) != 3:
            raise InputError.at(
                path, number, f"expected query, relevant and other document, found {len(ids)} ids"
            )
        query, relevant, other = ids
        if query not in queries:
            raise InputError.at(path, number, f"query id {query!r} is not in train_queries")
        for doc in (relevant, other):
            if doc not in docs:
                raise InputError.at(path, number, f"document id {doc!r} is not in the collection")
        if relevant == other:
            raise InputError.at(path, number, f"document id {other!r} stands on both sides")
        yield from (queries[query], docs[relevant], docs[other])


def read_text_triples(
    path: str | Path,
    query_words: Callable[[str], list[str]],
    doc_words: Callable[[str], list[str]],
    docs: TextsOnDisk,
) -> tuple[list[list[str]], NDArray[np.int32]]:
    """Queries, split into words, and (T, 3) numbers as of `read_triples`. Documents are added to
    `docs`; the same text is one query, or one document."""
    queries: list[list[str]] = []
    query_numbers: dict[str, int] = {}
    doc_numbers: dict[str, int] = {}
    triples: list[tuple[int, int, int]] = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        texts = [text.strip() for text in line.split("\t")]
        if len(texts) != 3:
            raise InputError.at(
                path, number, f"expected query, relevant and other text, found {len(texts)} texts"
            )
        if not all(texts) or texts[1] == texts[2]:
            continue  # the authors drop triples with an empty side
        if texts[0] not in query_numbers:
            query_numbers[texts[0]] = len(queries)
            queries.append(query_words(texts[0]))
        for text in texts[1:]:
            if text not in doc_numbers:
                doc_numbers[text] = len(docs)
                docs.append(doc_words(text))
        triples.append((query_numbers[texts[0]], doc_numbers[texts[1]], doc_numbers[texts[2]]))
    if not triples:
        raise InputError(f"{path} has no triples; expected lines of query, relevant, other text")
    return queries, np.array(triples, np.int32)


def group_triples(triples: NDArray[np.int32]) -> GroupedTriples:
    """Group triples (T, 3) of numbers by query."""
    queries, rows = np.unique(triples[:, 0], return_inverse=True)  # (Q,), (T,)
    width = int(triples[:, 1:].max()) + 1
    pairs = rows[:, None] * np.int64(width) + triples[:, 1:]  # (T, 2) one number for query and doc
    known, places = np.unique(pairs, return_inverse=True)  # sorted: query by query
    places = places.reshape(pairs.shape)
    grades = np.full(len(known), -1)
    grades[places[:, 0]] = 1
    offsets = np.searchsorted(known, np.arange(len(queries) + 1) * np.int64(width))
    return GroupedTriples(
        queries.astype(np.int64),
        Ragged(offsets.astype(np.int64), known % width),
        grades,
        np.column_stack([rows, places]).astype(np.int32),
    )


def rank_grouped(
    grouped: GroupedTriples,
    index: Index,
    queries: Sequence[Query],
    docs: Mapping[str, int],
    config: CandidatesConfig,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """First-stage ranks and scores of grouped.docs.values; 0 and the last score if not found."""
    ranks = np.zeros(len(grouped.docs.values), np.int64)
    scores = np.zeros(len(ranks))
    asked = [queries[number] for number in grouped.queries.tolist()]
    run = index.retrieve(asked, config.train_depth, config.method)
    for row, (_, retrieved, values) in enumerate(run.items()):
        part = slice(*grouped.docs.offsets[row : row + 2].tolist())
        rank_of = {docs[doc]: rank for rank, doc in enumerate(retrieved, 1)}
        ranks[part] = [rank_of.get(doc, 0) for doc in grouped.docs.values[part].tolist()]
        if len(values):
            scores[part] = values[ranks[part] - 1]  # rank 0 takes the last
    return ranks, scores
