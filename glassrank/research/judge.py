"""Judgments by hand: the best documents of several rankers, pooled and in blind order, to qrels.

Pooling is TREC's (K. Sparck Jones, C. van Rijsbergen, 1975). The order of a query's documents is
drawn from its id, so that it tells nothing about the rankers, and is the same when one goes on.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from glassrank.corpus import read_qrels, write_qrels
from glassrank.errors import InputError
from glassrank.rerank import Pipeline
from glassrank.types import Hit, Qrels, Query

LABELS = "0123"
"""Keys of relevance labels, as in TREC's Deep Learning track: 3 is perfectly relevant."""
BACK, SKIP, QUIT = "b", "s", "q"


class PooledDoc(NamedTuple):
    """A document to judge for a query."""

    query: Query
    hit: Hit
    place: int
    """From 1 on, of the query's pool."""
    of: int


def pool_docs(pipelines: Sequence[Pipeline], query: Query, depth: int) -> list[Hit]:
    """The best `depth` documents of every pipeline, each once, in an order that hides whose they
    are."""
    hits = {hit.doc_id: hit for pipeline in pipelines for hit in pipeline(query.text, depth)}
    pooled = [hits[doc_id] for doc_id in sorted(hits)]
    random.Random(query.query_id).shuffle(pooled)
    return pooled


def judge(
    pipelines: Sequence[Pipeline],
    queries: Sequence[Query],
    out: Path,
    ask: Callable[[PooledDoc], str],
    depth: int = 10,
) -> int:
    """Asks for a label of every pair that has none in the file `out`, and writes each at once.
    Returns how many were given. `ask` shows a pair and returns a key."""
    qrels: Qrels = read_qrels(out) if out.exists() and out.stat().st_size else {}
    given: list[PooledDoc] = []
    labelled: set[tuple[str, str]] = set()
    pairs = _list_pairs(pipelines, queries, qrels, depth)
    again: list[PooledDoc] = []
    while (pair := again.pop() if again else next(pairs, None)) is not None:
        key = ask(pair)
        if key == QUIT:
            break
        labels = qrels.setdefault(pair.query.query_id, {})
        if key == BACK:
            again.append(pair)
            if given:
                again.append(given.pop())
        elif key == SKIP:
            given.append(pair)
        elif key in LABELS:
            labels[pair.hit.doc_id] = LABELS.index(key)
            write_qrels(qrels, out)
            given.append(pair)
            labelled.add((pair.query.query_id, pair.hit.doc_id))
        else:
            raise InputError(f"expected one of {LABELS}, {BACK}, {SKIP} and {QUIT}, found {key!r}")
    return len(labelled)


def _list_pairs(
    pipelines: Sequence[Pipeline], queries: Sequence[Query], qrels: Qrels, depth: int
) -> Iterator[PooledDoc]:
    for query in queries:
        pooled = pool_docs(pipelines, query, depth)
        for place, hit in enumerate(pooled, 1):
            if hit.doc_id not in qrels.get(query.query_id, {}):
                yield PooledDoc(query, hit, place, len(pooled))
