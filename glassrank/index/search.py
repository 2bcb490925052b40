"""Queries in, ranked document numbers out."""

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import is_worth_compiling
from glassrank.index.packed_postings import NUMPY_COST, unpack_postings_numpy
from glassrank.index.scoring import BM25, QL, Floats
from glassrank.index.snapshot import Snapshot
from glassrank.index.topk import (
    KIND_BM25,
    KIND_QL,
    POSTINGS_BLOCK,
    Best,
    Postings,
    Queries,
    search_segment,
)
from glassrank.storage.mapped_arrays import as_readonly

WeightedQuery = Mapping[str, float]
"""Term -> how much it counts."""

_QUERIES_AT_ONCE = 32

MAX_POSTINGS = 30_000_000
"""That a query with a deadline has looked at: a fraction of a second, on an index of any size."""


class TopK(NamedTuple):
    """The best documents of one query, best first."""

    docs: NDArray[np.int64]  # (k,)
    scores: Floats  # (k,)
    missing: tuple[str, ...] = ()
    """Shards that were asked and have not answered."""


def search(
    snapshot: Snapshot,
    queries: Sequence[WeightedQuery],
    k: int,
    method: BM25 | QL,
    threads: int | None = None,
) -> list[TopK]:
    """The best k documents of each query.

    Compiled code does the work, without the lock that keeps Python's threads apart.
    """
    k = min(k, max(snapshot.bases[-1], 1))
    chunks = [queries[i : i + _QUERIES_AT_ONCE] for i in range(0, len(queries), _QUERIES_AT_ONCE)]
    threads = min(threads or os.cpu_count() or 1, len(chunks))
    if threads <= 1:
        results = [_search_chunk(snapshot, chunk, k, method) for chunk in chunks]
    else:
        with ThreadPoolExecutor(threads) as pool:
            results = list(
                pool.map(lambda chunk: _search_chunk(snapshot, chunk, k, method), chunks)
            )
    return [result for chunk in results for result in chunk]


def score_terms(
    snapshot: Snapshot, query: WeightedQuery, docs: NDArray[np.int64], method: BM25 | QL
) -> NDArray[np.float64]:
    """What each term of a query adds to the scores of these documents, which are sums over terms:
    (docs, terms)."""
    masks = [np.zeros(len(segment), bool) for segment in snapshot.segments]
    for number in docs.tolist():
        position = bisect_right(snapshot.bases, number) - 1
        masks[position][number - snapshot.bases[position]] = True
    alone = [{term: weight} for term, weight in query.items()]
    tops = search(snapshot.with_masks(masks), alone, max(1, len(docs)), method, threads=1)
    scores = np.zeros((len(docs), len(alone)))
    for term, top in enumerate(tops):
        by_doc = dict(zip(top.docs.tolist(), top.scores.tolist(), strict=True))
        scores[:, term] = [by_doc.get(number, 0.0) for number in docs.tolist()]
    return scores


def drop_high_df_terms(snapshot: Snapshot, query: WeightedQuery) -> WeightedQuery:
    """The query's rarest terms, which say most about a document: as many as have MOST_POSTINGS
    together, and one at least. Compiled code looks at no clock, so its work is bounded before."""
    postings = {term: snapshot.term(term).statistics.docs for term in query}
    if sum(postings.values()) <= MAX_POSTINGS:
        return query
    kept: set[str] = set()
    total = 0
    for term in sorted(query, key=lambda term: (postings[term], term)):
        total += postings[term]
        if kept and total > MAX_POSTINGS:
            break
        kept.add(term)
    return {term: weight for term, weight in query.items() if term in kept}


def _search_chunk(
    snapshot: Snapshot, queries: Sequence[WeightedQuery], k: int, method: BM25 | QL
) -> list[TopK]:
    parts: list[list[TopK]] = [[] for _ in queries]
    lengths = snapshot.length_norms(method)
    for position, segment in enumerate(snapshot.segments):
        best = Best(
            np.empty((len(queries), k), np.uint32),
            np.empty((len(queries), k), np.float32),
            np.empty(len(queries), np.int64),
        )
        _search_segment(
            method,
            _segment_queries(snapshot, queries, position, method),
            Postings(
                segment.postings.words,
                as_readonly(lengths[position]),
                as_readonly(snapshot.live[position]),
            ),
            best,
        )
        base = snapshot.bases[position]
        for part, size, row_docs, row_scores in zip(
            parts, best.sizes.tolist(), best.docs, best.scores, strict=True
        ):
            part.append(TopK(row_docs[:size].astype(np.int64) + base, row_scores[:size].copy()))
    return [merge_top_k(snapshot, part, k) for part in parts]


def _search_segment(method: BM25 | QL, queries: Queries, postings: Postings, best: Best) -> None:
    if isinstance(method, QL):
        search_segment(KIND_QL, queries, postings, best)
        return
    matches = NUMPY_COST * int(queries.sizes.sum())
    if is_worth_compiling(matches + len(postings.lengths) * len(best.sizes)):
        search_segment(KIND_BM25, queries, postings, best)
    else:
        _plain_bm25(queries, postings, best)


def _plain_bm25(queries: Queries, postings: Postings, best: Best) -> None:
    """As `search_segment` for BM25, in numpy: the same sums of float32 in the same order."""
    k = best.docs.shape[1]
    for query, (first, last) in enumerate(pairwise(queries.offsets.tolist())):
        scores = np.zeros(len(postings.lengths), np.float32)
        for place in range(first, last):
            row = slice(place, place + 1)
            starts, sizes = queries.starts[row], queries.sizes[row]
            _, docs, counts = unpack_postings_numpy(starts, sizes, postings.words, POSTINGS_BLOCK)
            count = counts.astype(np.float32)
            scores[docs] += queries.weights[place] * count / (count + postings.lengths[docs])
        if len(postings.live):
            scores[~postings.live] = 0
        matching = np.flatnonzero(scores > 0)
        if len(matching) > k:  # those that are at least as good as the best but k
            matching = matching[scores[matching] >= np.partition(scores[matching], -k)[-k]]
        matching = matching[np.argsort(-scores[matching], kind="stable")][:k]
        best.docs[query, : len(matching)] = matching
        best.scores[query, : len(matching)] = scores[matching]
        best.sizes[query] = len(matching)


def _segment_queries(
    snapshot: Snapshot, queries: Sequence[WeightedQuery], position: int, method: BM25 | QL
) -> Queries:
    """Those of their terms that one segment has."""
    rows = snapshot.segments[position].postings
    offsets, weights, scales = [0], [], []
    terms: list[int] = []
    for query in queries:
        for text, weight in query.items():
            term = snapshot.term(text)
            if term.numbers[position] >= 0 and term.statistics.docs:
                factors = method.term_factors(term.statistics, snapshot.collection)
                terms.append(term.numbers[position])
                weights.append(weight * factors.weight)
                scales.append(factors.scale)
        offsets.append(len(terms))
    return Queries(
        np.array(offsets, np.int64),
        rows.starts[np.array(terms, np.int64)].astype(np.int64),
        rows.sizes[np.array(terms, np.int64)].astype(np.int64),
        np.array(weights, np.float32),
        np.array(scales, np.float32),
    )


def merge_top_k(snapshot: Snapshot, parts: Sequence[TopK], k: int) -> TopK:
    """The best k of several parts of a collection; equal scores go by document id."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return TopK(np.empty(0, np.int64), np.empty(0, np.float32))
    docs = np.concatenate([part.docs for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    order = np.argsort(-scores, kind="stable")
    docs, scores = docs[order], scores[order]
    # Within a segment ties are in order already; between segments only the ids can tell.
    ends = np.flatnonzero(np.diff(scores)) + 1
    for first, last in zip([0, *ends.tolist()], [*ends.tolist(), len(docs)], strict=True):
        if first >= k:
            break
        if last - first > 1:
            docs[first:last] = sorted(docs[first:last].tolist(), key=snapshot.doc_id)
    return TopK(docs[:k], scores[:k])
