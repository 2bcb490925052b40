"""The compiled search: the best k documents of one segment for some queries.

Documents are scored in windows that fit the first-level cache. A histogram of the scores so far
gives a floor that k documents have passed; adding to a score marks the document when it is above
the floor, so only such documents are looked at again, and the few left at the end are sorted once.
Ties go to the smaller number, which is the smaller id.

Loops that decide about each document do so without a branch: it would be guessed wrong too often.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

WINDOW = 4096
_BUCKETS = 1024
_LOG_TABLE = 32
_OFTEN = 8
_RADIX_BITS = 11
_RADIX = 1 << _RADIX_BITS
_ALMOST_NOTHING = np.float32(1e-30)

KIND_BM25 = 0
KIND_QL = 1


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _drop_deleted(scores: Any, docs: Any, start: int, stop: int, live: Any) -> int:
    kept = start
    for i in range(start, stop):
        scores[kept] = scores[i]
        docs[kept] = docs[i]
        kept += live[docs[i]]
    return kept


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def search_segment(
    kind: int,
    query_offsets: NDArray[np.int64],  # (Q + 1,)
    terms: NDArray[np.int64],  # (query terms,)
    weights: NDArray[np.float32],  # (query terms,)
    scales: NDArray[np.float32],  # (query terms,)
    posting_offsets: NDArray[np.int64],  # (T + 1,)
    posting_docs: NDArray[np.uint32],  # (P,)
    posting_counts: Any,  # (P,)
    lengths: NDArray[np.float32],  # (N,)
    live: NDArray[np.bool_],  # (N,), or empty when no document is deleted
    out_docs: NDArray[np.uint32],  # (Q, k)
    out_scores: NDArray[np.float32],  # (Q, k)
    out_sizes: NDArray[np.int64],  # (Q,)
) -> None:
    k = out_docs.shape[1]
    docs_in_segment = len(lengths)
    capacity = 3 * WINDOW + 4 * k + 8
    window = np.zeros(WINDOW, np.float32)
    marks = np.zeros(WINDOW, np.bool_)
    words = marks.view(np.uint64)
    scores, other_scores = np.empty(capacity, np.float32), np.empty(capacity, np.float32)
    docs, other_docs = np.empty(capacity, np.uint32), np.empty(capacity, np.uint32)
    starts = np.empty(_RADIX, np.int32)
    histogram = np.empty(_BUCKETS + 1, np.int32)
    most_terms = np.max(np.diff(query_offsets)) if len(query_offsets) > 1 else 0
    cursors = np.empty(most_terms, np.int64)
    logs = np.zeros((most_terms, _LOG_TABLE), np.float32)

    for query in range(len(query_offsets) - 1):
        first = query_offsets[query]
        count = query_offsets[query + 1] - first
        bound = np.float32(0)  # hardly any score is above this; the last bucket takes the rest
        for t in range(count):
            cursors[t] = posting_offsets[terms[first + t]]
            if kind == KIND_BM25:
                bound += weights[first + t]
            else:
                for tf in range(_LOG_TABLE):
                    logs[t, tf] = np.log1p(scales[first + t] * np.float32(tf))
                bound += weights[first + t] * logs[t, _OFTEN]
        to_bucket = np.float32(_BUCKETS) / max(bound, np.float32(1e-20))
        histogram[:] = 0
        kept = 0  # candidates in `scores` and `docs`
        floor = np.float32(0)  # only scores above it can matter
        bucket = 0  # the bucket that `floor` is the lower edge of
        passed = 0  # candidates in this bucket or above

        base = 0
        while base < docs_in_segment:
            end = min(base + WINDOW, docs_in_segment)
            size = end - base
            touched = False
            window_lengths = lengths[base:end]
            for t in range(count):
                start = cursors[t]
                stop = _first_not_below(
                    posting_docs, start, posting_offsets[terms[first + t] + 1], end
                )
                cursors[t] = stop
                if stop == start:
                    continue
                touched = True
                if kind == KIND_BM25:
                    _add_bm25(
                        posting_docs[start:stop],
                        posting_counts[start:stop],
                        window_lengths,
                        np.uint32(base),
                        weights[first + t],
                        window,
                        floor,
                        marks,
                    )
                else:
                    _add_ql(
                        posting_docs[start:stop],
                        posting_counts[start:stop],
                        window_lengths,
                        np.uint32(base),
                        weights[first + t],
                        scales[first + t],
                        logs[t],
                        window,
                        floor,
                        marks,
                    )
            if touched:
                before = kept
                for word in range((size + 7) >> 3):  # eight documents at a time
                    if words[word]:
                        words[word] = 0
                        for local in range(word << 3, (word << 3) + 8):
                            scores[kept] = window[local]
                            docs[kept] = base + local
                            kept += window[local] > floor
                if len(live):
                    kept = _drop_deleted(scores, docs, before, kept, live)
                for i in range(before, kept):
                    reached = min(int(scores[i] * to_bucket), _BUCKETS)
                    histogram[reached] += 1
                    passed += reached >= bucket
                window[:size] = 0
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
            base = end

        n = 0
        for i in range(kept):
            scores[n] = scores[i]
            docs[n] = docs[i]
            n += scores[i] >= floor
        _sort_descending(scores, docs, n, other_scores, other_docs, starts)
        n = min(n, k)
        out_docs[query, :n] = other_docs[:n]
        out_scores[query, :n] = other_scores[:n]
        out_sizes[query] = n
