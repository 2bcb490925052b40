"""The plain forms of compiled code, in numpy: what it must equal, and what stands in for it where
little is to be done. To load compiled code takes longer than one query on a small index does."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.arrays import consecutive
from glassrank.retrieve.packing import (
    COUNT_BITS,
    DISTANCE_BITS,
    HEADER_BITS,
    WIDTH_BITS,
    CountedRows,
)
from glassrank.retrieve.topk import POSTINGS_BLOCK, Best, Postings, Queries


def search_bm25(queries: Queries, postings: Postings, best: Best) -> None:
    """As `topk.search_segment` for BM25: the same sums of the same float32 in the same order."""
    k = best.docs.shape[1]
    for query, (first, last) in enumerate(pairwise(queries.offsets.tolist())):
        scores = np.zeros(len(postings.lengths), np.float32)
        for place in range(first, last):
            row = slice(place, place + 1)
            starts, sizes = queries.starts[row], queries.sizes[row]
            _, docs, counts = unpack_rows(starts, sizes, postings.words, POSTINGS_BLOCK)
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


def ascend(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> bool:
    """Whether each string is greater than the one before, by its bytes."""
    every = data.tobytes()
    strings = (every[start:end] for start, end in pairwise(offsets.tolist()))
    return all(before < after for before, after in pairwise(strings))


def count(
    offsets: NDArray[np.int64],
    terms: NDArray[np.uint32],
    counts: NDArray[np.uint32],
    lengths: NDArray[np.uint32],
    frequencies: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> bool:
    """Counts terms in document vectors; whether each document is as long as its vector says."""
    frequencies += np.bincount(terms, minlength=len(frequencies))
    totals += np.bincount(terms, counts, len(totals)).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[offsets]
    return bool((np.diff(ends) == lengths).all())


def unpack_rows(
    starts: NDArray[np.int64], sizes: NDArray[np.int64], words: NDArray[np.uint32], block: int
) -> CountedRows:
    """As `packing.unpack_rows`."""
    rows = _rows(starts, sizes, words, block)
    assert rows is not None  # where no ends are given
    offsets, values, counts = rows
    return CountedRows(offsets, values.astype(np.uint32), counts.astype(np.uint32))


def rows_hold(
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    words: NDArray[np.uint32],
    block: int,
    limit: int,
) -> bool:
    """As `packing.rows_hold`."""
    if not (sizes <= limit).all():
        return False
    rows = _rows(starts[:-1], sizes, words, block, starts[1:])
    return rows is not None and bool(rows[1].max(initial=-1) < limit)


def _rows(
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    words: NDArray[np.uint32],
    block: int,
    ends: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Rows as numbers, all first blocks at once, then all second ones; None where they do not end
    with the words before `ends`."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    distances, counts = np.zeros(offsets[-1], np.int64), np.zeros(offsets[-1], np.int64)
    bits, left, places = starts << 5, sizes.copy(), offsets[:-1].copy()
    rows = np.flatnonzero(left)
    while len(rows):
        if ends is not None and (bits[rows] + HEADER_BITS > ends[rows] << 5).any():
            return None
        header = _bits(words, bits[rows], np.int64(HEADER_BITS))
        distance, count = header & ((1 << WIDTH_BITS) - 1), header >> WIDTH_BITS
        numbers = np.minimum(left[rows], block)
        first = bits[rows] + HEADER_BITS
        bits[rows] = first + numbers * (distance + count)
        too_wide = distance.max() > DISTANCE_BITS or count.max() > COUNT_BITS
        if ends is not None and (too_wide or (bits[rows] > ends[rows] << 5).any()):
            return None
        into = consecutive(places[rows], numbers)
        within = consecutive(np.zeros(len(rows), np.int64), numbers)
        at = np.repeat(first, numbers) + within * np.repeat(distance + count, numbers)
        distances[into] = _bits(words, at, np.repeat(distance, numbers))
        at += np.repeat(distance, numbers)
        counts[into] = _bits(words, at, np.repeat(count, numbers))
        left[rows] -= numbers
        places[rows] += numbers
        rows = rows[left[rows] > 0]
    if ends is not None and ((bits + 31) >> 5 != ends).any():
        return None
    sums = np.cumsum(distances + 1)
    before = np.repeat(np.concatenate([[0], sums])[offsets[:-1]], sizes)
    return offsets, sums - before - 1, counts + 1


def _bits(words: NDArray[np.uint32], bits: NDArray[np.int64], widths: Any) -> NDArray[np.int64]:
    """So many bits from there."""
    at = bits >> 5
    both = words[at].astype(np.uint64) | words[at + 1].astype(np.uint64) << np.uint64(32)
    masks = (np.uint64(1) << widths.astype(np.uint64)) - np.uint64(1)
    values: NDArray[np.int64] = (both >> (bits & 31).astype(np.uint64) & masks).astype(np.int64)
    return values
