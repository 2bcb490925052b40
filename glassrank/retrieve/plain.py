"""The plain forms of compiled code, in numpy: what it must equal, and what stands in for it where
little is to be done. To load compiled code takes longer than one query on a small index does."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from glassrank.retrieve.topk import Best, Postings, Queries


def search_bm25(queries: Queries, postings: Postings, best: Best) -> None:
    """As `topk.search_segment` for BM25: the same sums of the same float32 in the same order."""
    counts = postings.counts.view(f"u{postings.count_bytes}")
    k = best.docs.shape[1]
    for query, (first, last) in enumerate(pairwise(queries.offsets.tolist())):
        scores = np.zeros(len(postings.lengths), np.float32)
        for place in range(first, last):
            part = slice(*postings.offsets[queries.terms[place] :][:2].tolist())
            docs, count = postings.docs[part], counts[part].astype(np.float32)
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


def rows_ascend(offsets: NDArray[np.int64], values: NDArray[np.uint32], limit: int) -> bool:
    """Whether the values of each row ascend, and stay below a limit."""
    if not len(values):
        return True
    above = values[1:] > values[:-1]
    begins = offsets[1:-1]
    above[begins[(begins > 0) & (begins < len(values))] - 1] = True  # another row's
    return bool(above.all() and values.max() < limit)


def count(
    offsets: NDArray[np.int64],
    terms: NDArray[np.uint32],
    counts: NDArray[np.unsignedinteger],
    lengths: NDArray[np.uint32],
    frequencies: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> bool:
    """Counts terms in document vectors; whether each document is as long as its vector says."""
    frequencies += np.bincount(terms, minlength=len(frequencies))
    totals += np.bincount(terms, counts, len(totals)).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[offsets]
    return bool((np.diff(ends) == lengths).all())
