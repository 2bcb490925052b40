"""The compiled search: the best k documents of one segment for some queries.

Documents are scored in windows that fit the first-level cache. A histogram of the scores so far
gives a floor that k documents have passed; adding to a score marks the document when it is above
the floor, so only such documents are looked at again, and the few left at the end are sorted once.
Ties go to the smaller number, which is the smaller id.

Loops that decide about each document do so without a branch: it would be guessed wrong too often.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.compiled import compiled, inner

WINDOW = 4096
_BUCKETS = 1024
_LOG_TABLE = 32
_OFTEN = 8
_RADIX_BITS = 11
_RADIX = 1 << _RADIX_BITS
_ALMOST_NOTHING = np.float32(1e-30)

KIND_BM25 = 0
KIND_QL = 1


class Queries(NamedTuple):
    """Several queries, one after another: query i has terms `offsets[i]` to `offsets[i + 1]`."""

    offsets: NDArray[np.int64]  # (Q + 1,)
    terms: NDArray[np.int64]  # (query terms,) by their numbers in the segment
    weights: NDArray[np.float32]  # (query terms,)
    scales: NDArray[np.float32]  # (query terms,) of query likelihood


class Postings(NamedTuple):
    """Of a segment: term t is in the documents `docs[offsets[t] : offsets[t + 1]]`. All are frozen
    (`arrays.frozen`), and counts of any size come as bytes, so that there is one type of them."""

    offsets: NDArray[np.int64]  # (T + 1,)
    docs: NDArray[np.uint32]  # (P,)
    counts: NDArray[np.uint8]  # (P * count_bytes,)
    count_bytes: int  # 1, 2 or 4
    lengths: NDArray[np.float32]  # (N,) what a document's length adds, by the method
    live: NDArray[np.bool_]  # (N,), or empty when no document is deleted


class Best(NamedTuple):
    """Room for what is found, best first."""

    docs: NDArray[np.uint32]  # (Q, k)
    scores: NDArray[np.float32]  # (Q, k)
    sizes: NDArray[np.int64]  # (Q,) how many of the k there are


class _Work(NamedTuple):
    """Memory for one window of documents."""

    window: NDArray[np.float32]  # (WINDOW,) scores
    marks: NDArray[np.bool_]  # (WINDOW,) those above the floor
    words: NDArray[np.uint64]  # the same memory, eight marks at a time
    cursors: NDArray[np.int64]  # (terms,) where postings go on
    logs: NDArray[np.float32]  # (terms, _LOG_TABLE)


@inner
def _first_not_below(docs: Any, start: int, stop: int, limit: int) -> int:
    """Position of the first posting of document `limit` or above: galloping, then bisection."""
    step = 32
    probe = start
    while probe < stop and docs[probe] < limit:
        start = probe + 1
        probe += step
        step += step
    stop = min(probe, stop)
    while start < stop:
        middle = (start + stop) >> 1
        if docs[middle] < limit:
            start = middle + 1
        else:
            stop = middle
    return start


@inner
def _add_bm25(
    docs: Any,
    counts: Any,
    lengths: Any,
    base: Any,
    weight: Any,
    scores: Any,
    floor: Any,
    marks: Any,
) -> None:
    for i in range(len(docs)):
        local = docs[i] - base
        count = np.float32(counts[i])
        score = scores[local] + weight * count / (count + lengths[local])
        scores[local] = score
        marks[local] = score > floor


@inner
def _add_ql(
    docs: Any,
    counts: Any,
    lengths: Any,
    base: Any,
    weight: Any,
    scale: Any,
    logs: Any,
    scores: Any,
    floor: Any,
    marks: Any,
) -> None:
    for i in range(len(docs)):
        local = docs[i] - base
        count = counts[i]
        log = logs[count] if count < _LOG_TABLE else np.log1p(scale * np.float32(count))
        score = scores[local] + max(weight * (log + lengths[local]), _ALMOST_NOTHING)
        scores[local] = score
        marks[local] = score > floor


@inner
def _add(
    kind: int, docs: Any, counts: Any, lengths: Any, base: Any, term: Any, floor: Any, work: Any
) -> None:
    weight, scale, logs = term
    if kind == KIND_BM25:
        _add_bm25(docs, counts, lengths, base, weight, work.window, floor, work.marks)
    else:
        _add_ql(docs, counts, lengths, base, weight, scale, logs, work.window, floor, work.marks)


@inner
def _drop_deleted(scores: Any, docs: Any, start: int, stop: int, live: Any) -> int:
    kept = start
    for i in range(start, stop):
        scores[kept] = scores[i]
        docs[kept] = docs[i]
        kept += live[docs[i]]
    return kept


@inner
def _sort_descending(
    scores: Any, docs: Any, n: int, other_scores: Any, other_docs: Any, starts: Any
) -> None:
    """Radix sort of the first n, best first, stable; the result stands in the *other* arrays.

    The bits of positive floats order as the floats do.
    """
    for turn in range(3):
        shift = np.uint32(turn * _RADIX_BITS)
        keys = scores[:n].view(np.uint32)
        out = other_scores[:n].view(np.uint32)
        starts[:] = 0
        for i in range(n):
            starts[(~keys[i] >> shift) & np.uint32(_RADIX - 1)] += 1
        total = 0
        for digit in range(_RADIX):
            count = starts[digit]
            starts[digit] = total
            total += count
        for i in range(n):
            digit = (~keys[i] >> shift) & np.uint32(_RADIX - 1)
            at = starts[digit]
            starts[digit] = at + 1
            out[at] = keys[i]
            other_docs[at] = docs[i]
        scores, other_scores = other_scores, scores
        docs, other_docs = other_docs, docs


@inner
def _begin_query(kind: int, queries: Any, first: int, count: int, postings: Any, work: Any) -> Any:
    """Where each of its `count` terms' postings begin, and the logarithms that query likelihood
    needs often; gives what hardly any score is above."""
    bound = np.float32(0)
    for t in range(count):
        work.cursors[t] = postings.offsets[queries.terms[first + t]]
        if kind == KIND_BM25:
            bound += queries.weights[first + t]
        else:
            for tf in range(_LOG_TABLE):
                work.logs[t, tf] = np.log1p(queries.scales[first + t] * np.float32(tf))
            bound += queries.weights[first + t] * work.logs[t, _OFTEN]
    return bound


@inner
def _score_window(
    kind: int, queries: Any, first: int, count: int, postings: Any, base: int, end: int,
    floor: Any, work: Any,
) -> bool:  # fmt: skip
    """Adds what documents `base` to `end` have of each term; says whether any has one."""
    touched = False
    lengths = postings.lengths[base:end]
    for t in range(count):
        start = work.cursors[t]
        last = postings.offsets[queries.terms[first + t] + 1]
        stop = _first_not_below(postings.docs, start, last, end)
        work.cursors[t] = stop
        if stop == start:
            continue
        touched = True
        docs = postings.docs[start:stop]
        counts = postings.counts[start * postings.count_bytes : stop * postings.count_bytes]
        term = queries.weights[first + t], queries.scales[first + t], work.logs[t]
        if postings.count_bytes == 1:
            _add(kind, docs, counts, lengths, np.uint32(base), term, floor, work)
        elif postings.count_bytes == 2:
            _add(kind, docs, counts.view(np.uint16), lengths, np.uint32(base), term, floor, work)
        else:
            _add(kind, docs, counts.view(np.uint32), lengths, np.uint32(base), term, floor, work)
    return touched


@inner
def _collect(work: Any, base: int, size: int, floor: Any, scores: Any, docs: Any, kept: int) -> int:
    """The marked documents of a window that are above the floor, behind the `kept` ones."""
    for word in range((size + 7) >> 3):  # eight documents at a time
        if work.words[word]:
            work.words[word] = 0
            for local in range(word << 3, (word << 3) + 8):
                scores[kept] = work.window[local]
                docs[kept] = base + local
                kept += work.window[local] > floor
    work.window[:size] = 0
    return kept


@compiled
def search_segment(kind: int, queries: Any, postings: Any, best: Any) -> None:
    """Writes the best documents of one segment for each query: `Queries`, `Postings`, `Best`."""
    k = best.docs.shape[1]
    docs_in_segment = len(postings.lengths)
    capacity = 3 * WINDOW + 4 * k + 8
    marks = np.zeros(WINDOW, np.bool_)
    most_terms = np.max(np.diff(queries.offsets)) if len(queries.offsets) > 1 else 0
    work = _Work(
        np.zeros(WINDOW, np.float32),
        marks,
        marks.view(np.uint64),
        np.empty(most_terms, np.int64),
        np.zeros((most_terms, _LOG_TABLE), np.float32),
    )
    scores, other_scores = np.empty(capacity, np.float32), np.empty(capacity, np.float32)
    docs, other_docs = np.empty(capacity, np.uint32), np.empty(capacity, np.uint32)
    starts = np.empty(_RADIX, np.int32)
    histogram = np.empty(_BUCKETS + 1, np.int32)

    for query in range(len(queries.offsets) - 1):
        first = queries.offsets[query]
        count = queries.offsets[query + 1] - first
        bound = _begin_query(kind, queries, first, count, postings, work)
        to_bucket = np.float32(_BUCKETS) / max(bound, np.float32(1e-20))  # the last takes the rest
        histogram[:] = 0
        kept = np.int64(0)  # candidates in `scores` and `docs`
        floor = np.float32(0)  # only scores above it can matter
        bucket = 0  # the bucket that `floor` is the lower edge of
        passed = 0  # candidates in this bucket or above

        for base in range(0, docs_in_segment, WINDOW):
            end = min(base + WINDOW, docs_in_segment)
            if not _score_window(kind, queries, first, count, postings, base, end, floor, work):
                continue
            before = kept
            kept = _collect(work, base, end - base, floor, scores, docs, kept)
            if len(postings.live):
                kept = _drop_deleted(scores, docs, before, kept, postings.live)
            for i in range(before, kept):
                reached = min(int(scores[i] * to_bucket), _BUCKETS)
                histogram[reached] += 1
                passed += reached >= bucket
            while passed - histogram[bucket] >= k:
                passed -= histogram[bucket]
                bucket += 1
            # a little below the edge, so that rounding loses nothing
            floor = max(floor, np.float32(bucket) / to_bucket * np.float32(0.99999))
            if kept + WINDOW + 8 > capacity:  # many with almost one score: keep exactly k
                _sort_descending(scores, docs, kept, other_scores, other_docs, starts)
                kept = min(kept, k)
                scores, other_scores = other_scores, scores
                docs, other_docs = other_docs, docs
                if kept == k:  # a later document of the same score has a larger id
                    floor = max(floor, scores[k - 1])

        n = 0
        for i in range(kept):
            scores[n] = scores[i]
            docs[n] = docs[i]
            n += scores[i] >= floor
        _sort_descending(scores, docs, n, other_scores, other_docs, starts)
        n = min(n, k)
        best.docs[query, :n] = other_docs[:n]
        best.scores[query, :n] = other_scores[:n]
        best.sizes[query] = n
