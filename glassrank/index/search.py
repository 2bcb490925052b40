"""Searches a snapshot: analyzed queries in, ranked document numbers out; and RM3.

RM3, from Jaleel et al., "UMass at TREC 2004", is pseudo-relevance feedback as in Anserini: the most
frequent terms of the first documents, weighted by the documents' scores, expand the query.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import isinf
from operator import index
from typing import Any, NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray

from glassrank.backends.compiled import is_worth_compiling
from glassrank.deadline import NEVER, Deadline
from glassrank.errors import InputError, describe_type
from glassrank.index.packed_postings import NUMPY_COST, unpack_postings_numpy
from glassrank.index.scoring import (
    BM25,
    KIND_BM25,
    KIND_QL,
    POSTINGS_BLOCK,
    QL,
    Queries,
    SegmentPostings,
    TopKBuffers,
    search_segment,
)
from glassrank.index.snapshot import Snapshot
from glassrank.storage.mapped_arrays import Floats, Ints, as_readonly
from glassrank.text import EnglishAnalyzer

WeightedQuery = Mapping[str, float]  # term -> weight

_QUERIES_AT_ONCE = 32

MAX_POSTINGS = 30_000_000
"""Of a query with a deadline: they take a fraction of a second, on an index of any size."""


class TopK(NamedTuple):
    """The top k documents of a query, best first."""

    docs: Ints  # (k,)
    scores: Floats  # (k,)
    missing: tuple[str, ...] = ()  # shards that did not answer
    fused: Floats | None = None
    """(k,) where they were retrieved by vectors, too: what they are ordered by. `scores` are then
    those by terms, which models interpolate with."""
    found_by: NDArray[np.uint8] | None = None
    """(k,) how each was found: `BY_TERMS`, `BY_VECTOR`, `BY_NEIGHBOUR`, or a sum of them."""

    def head(self, k: int) -> "TopK":
        """The first k."""
        fused = None if self.fused is None else self.fused[:k]
        found_by = None if self.found_by is None else self.found_by[:k]
        return TopK(self.docs[:k], self.scores[:k], self.missing, fused, found_by)


BY_TERMS, BY_VECTOR, BY_NEIGHBOUR = 1, 2, 4


def check_query(query: Any) -> None:
    """A query is a text, which may be empty."""
    if not isinstance(query, str):
        raise InputError(f"the query must be a text, not {describe_type(query)}")


def check_k(k: Any) -> None:
    """k is a positive integer."""
    try:
        whole = 0 if isinstance(k, bool) else index(k)
    except TypeError:
        whole = 0
    if whole < 1:
        raise InputError(f"k must be a positive integer, not {k!r}")


def search(
    snapshot: Snapshot,
    queries: Sequence[WeightedQuery],
    k: int,
    method: BM25 | QL,
    threads: int | None = None,
) -> list[TopK]:
    """The top k documents of each query. Compiled code does the work without Python's lock."""
    k = min(k, max(snapshot.bases[-1], 1))
    chunks = [queries[i : i + _QUERIES_AT_ONCE] for i in range(0, len(queries), _QUERIES_AT_ONCE)]
    threads = min(threads or os.cpu_count() or 1, len(chunks))
    if threads <= 1:
        results = [_search_chunk(snapshot, chunk, k, method) for chunk in chunks]
    else:
        with ThreadPoolExecutor(threads) as pool:
            results = list(pool.map(lambda c: _search_chunk(snapshot, c, k, method), chunks))
    return [result for chunk in results for result in chunk]


def score_terms(
    snapshot: Snapshot, query: WeightedQuery, docs: Ints, method: BM25 | QL
) -> NDArray[np.float64]:
    """The part of each term in the scores of these documents, which are sums: (docs, terms)."""
    single_terms = [{term: weight} for term, weight in query.items()]
    tops = search(snapshot.with_docs(docs), single_terms, max(1, len(docs)), method, threads=1)
    scores = np.zeros((len(docs), len(single_terms)))
    for term, top in enumerate(tops):
        by_doc = dict(zip(top.docs.tolist(), top.scores.tolist(), strict=True))
        scores[:, term] = [by_doc.get(number, 0.0) for number in docs.tolist()]
    return scores


def drop_high_df_terms(snapshot: Snapshot, query: WeightedQuery) -> WeightedQuery:
    """Keeps the rarest terms, up to `MAX_POSTINGS` postings in all, but at least one. Compiled
    code checks no deadline, so its work is bounded in advance."""
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
        best = TopKBuffers(
            np.empty((len(queries), k), np.uint32),
            np.empty((len(queries), k), np.float32),
            np.empty(len(queries), np.int64),
        )
        norms, live = as_readonly(lengths[position]), as_readonly(snapshot.live[position])
        postings = SegmentPostings(segment.postings.words, norms, live)
        terms = _find_terms(snapshot, queries, position, method)
        # Loading compiled code pays off only for much work.
        work = NUMPY_COST * int(terms.sizes.sum()) + len(norms) * len(queries)
        if isinstance(method, QL):
            search_segment(KIND_QL, terms, postings, best)
        elif is_worth_compiling(work):
            search_segment(KIND_BM25, terms, postings, best)
        else:
            _search_bm25_numpy(terms, postings, best)
        base = snapshot.bases[position]
        for part, size, row_docs, row_scores in zip(
            parts, best.sizes.tolist(), best.docs, best.scores, strict=True
        ):
            part.append(TopK(row_docs[:size].astype(np.int64) + base, row_scores[:size].copy()))
    return [merge_top_k(snapshot, part, k) for part in parts]


def _search_bm25_numpy(queries: Queries, postings: SegmentPostings, best: TopKBuffers) -> None:
    """As `search_segment` for BM25, in numpy: the same float32 sums in the same order."""
    k = best.docs.shape[1]
    for query, (first, last) in enumerate(pairwise(queries.offsets.tolist())):
        scores = np.zeros(len(postings.lengths), np.float32)
        for term in range(first, last):
            row = slice(term, term + 1)
            starts, sizes = queries.starts[row], queries.sizes[row]
            _, docs, tfs = unpack_postings_numpy(starts, sizes, postings.words, POSTINGS_BLOCK)
            tf = tfs.astype(np.float32)
            scores[docs] += queries.weights[term] * tf / (tf + postings.lengths[docs])
        if len(postings.live):
            scores[~postings.live] = 0
        matching = np.flatnonzero(scores > 0)
        if len(matching) > k:  # at least as good as the k-th
            matching = matching[scores[matching] >= np.partition(scores[matching], -k)[-k]]
        matching = matching[np.argsort(-scores[matching], kind="stable")][:k]
        best.docs[query, : len(matching)] = matching
        best.scores[query, : len(matching)] = scores[matching]
        best.sizes[query] = len(matching)


def _find_terms(
    snapshot: Snapshot, queries: Sequence[WeightedQuery], position: int, method: BM25 | QL
) -> Queries:
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
    """Merges the results of several parts of a collection; equal scores go by document id."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return TopK(np.empty(0, np.int64), np.empty(0, np.float32))
    docs = np.concatenate([part.docs for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    order = np.argsort(-scores, kind="stable")
    docs, scores = docs[order], scores[order]
    # Ties within a segment are in order already; between segments ids decide.
    ends = np.flatnonzero(np.diff(scores)) + 1
    for first, last in zip([0, *ends.tolist()], [*ends.tolist(), len(docs)], strict=True):
        if first >= k:
            break
        if last - first > 1:
            docs[first:last] = sorted(docs[first:last].tolist(), key=snapshot.doc_id)
    return TopK(docs[:k], scores[:k])


_EXPANSION_TERM = re.compile("[a-z0-9]{2,20}")  # as Anserini's
_FOREIGN_EXPANSION_TERM = regex.compile(r"[\p{L}\p{M}\p{N}]{2,20}")
_TERMS_PER_CHECK = 64
_MAX_DF = 0.1  # terms in a larger fraction of the documents do not expand a query


@dataclass(frozen=True)
class RM3:
    """Pseudo-relevance feedback over a first pass with `base`."""

    base: BM25 | QL
    terms: int = 10
    docs: int = 10
    weight: float = 0.5  # of the original query; the expansion has the rest


def expand(
    snapshot: Snapshot,
    query: WeightedQuery,
    first_pass: TopK,
    method: RM3,
    deadline: Deadline = NEVER,
) -> dict[str, float]:
    """The expanded query. Feedback takes at most half of the remaining time."""
    relevance = _relevance_model(snapshot, first_pass, method.terms, deadline.share(0.5))
    original = _normalize(query)
    if not relevance:
        return original
    return {
        term: method.weight * original.get(term, 0.0)
        + (1 - method.weight) * relevance.get(term, 0.0)
        for term in {**original, **relevance}
    }


def _relevance_model(
    snapshot: Snapshot, first_pass: TopK, terms: int, deadline: Deadline
) -> dict[str, float]:
    model: defaultdict[str, float] = defaultdict(float)
    for number, score in zip(first_pass.docs.tolist(), first_pass.scores.tolist(), strict=True):
        frequent = _frequent_terms(snapshot, number, terms, deadline)
        if deadline.has_passed():  # the terms of this document may be incomplete
            break
        for term, share in _normalize(frequent).items():
            model[term] += share * score
    best = sorted(model.items(), key=lambda item: (-item[1], item[0]))[:terms]
    return _normalize(dict(best))


def _frequent_terms(
    snapshot: Snapshot, number: int, n: int, deadline: Deadline
) -> dict[str, float]:
    """The n most frequent expansion terms of a document, with their tf; ties go by bytes."""
    segment, local = snapshot.locate(number)
    terms, tfs = segment.term_vector(local)
    max_docs = _MAX_DF * snapshot.collection.docs
    is_english = snapshot.manifest.analyzer == EnglishAnalyzer.name
    is_expansion_term = (_EXPANSION_TERM if is_english else _FOREIGN_EXPANSION_TERM).fullmatch
    frequent: dict[str, float] = {}
    order = np.lexsort((terms, -tfs.astype(np.int64)))
    for tried, i in enumerate(order.tolist()):
        text = segment.terms[int(terms[i])]
        if is_expansion_term(text) and snapshot.term(text).statistics.docs <= max_docs:
            frequent[text] = float(tfs[i])
        if len(frequent) == n or (tried % _TERMS_PER_CHECK == 0 and deadline.has_passed()):
            break
    return frequent


def _normalize(weights: WeightedQuery) -> dict[str, float]:
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()} if total > 0 else {}


Method = BM25 | QL | RM3
Search = Callable[[Snapshot, Sequence[WeightedQuery], int, BM25 | QL, int | None], list[TopK]]


def run_method(
    snapshot: Snapshot,
    queries: Sequence[Sequence[str]],
    k: int,
    method: Method,
    threads: int | None = None,
    deadline: Deadline = NEVER,
    search: Search = search,
) -> list[TopK]:
    """The top k documents of each query, given as its terms. With a deadline, frequent terms are
    dropped and late queries are not expanded. An index on several machines has its own `search`."""

    def limit(queries: Sequence[WeightedQuery]) -> Sequence[WeightedQuery]:
        if isinf(deadline.at):
            return queries
        return [drop_high_df_terms(snapshot, query) for query in queries]

    weighted = limit([Counter(query) for query in queries])
    if not isinstance(method, RM3):
        return search(snapshot, weighted, k, method, threads)
    first_pass = search(snapshot, weighted, method.docs, method.base, threads)
    expanded = [
        expand(snapshot, query, best, method, deadline)
        for query, best in zip(weighted, first_pass, strict=True)
    ]
    return search(snapshot, limit(expanded), k, method.base, threads)
