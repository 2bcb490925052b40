"""BM25 and query likelihood, as Lucene computes them: plain, and in the compiled search.

Both combine a factor of the term, a norm of the document's length, and the tf of the term in the
document.

The compiled search finds the top k documents of a segment for several queries. Documents are scored
in windows that fit the L1 cache. A histogram of the scores so far gives a floor that k documents
have passed. A document is marked when its score passes the floor; only marked documents are
collected, and the few that remain are sorted once. Ties go to the smaller number, which is the
smaller id. Loops that decide about each document have no branch: it would be mispredicted too
often.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import Compiled, compiled, inner
from glassrank.index.packed_postings import HEADER_BITS, WIDTH_BITS
from glassrank.storage.mapped_arrays import Bools, Floats, Ints, Uints

MIN_TERM_SCORE = 1e-30
"""The least that a matching term adds, so that a document of score 0 is still a match."""


class CollectionStatistics(NamedTuple):
    """Statistics of the whole collection."""

    docs: int
    tokens: int

    @property
    def average_length(self) -> float:
        """Tokens of an average document."""
        return self.tokens / self.docs if self.docs else 0.0


class TermStatistics(NamedTuple):
    """Document frequency (df) and collection frequency (cf) of a term."""

    docs: int
    occurrences: int


class TermFactors(NamedTuple):
    """The factors of a score that depend on the term, without its weight in the query."""

    weight: float
    scale: float


@dataclass(frozen=True)
class BM25:
    """idf * tf / (tf + k1 (1 - b + b L / avgdl)), idf = ln(1 + (N - df + 0.5) / (df + 0.5))."""

    k1: float = 0.9
    b: float = 0.4
    rounded: bool = False  # quantizes lengths as Lucene does, for exactly the same ranking

    def term_factors(self, term: TermStatistics, collection: CollectionStatistics) -> TermFactors:
        """The factors of a term."""
        return TermFactors(
            float(np.log1p((collection.docs - term.docs + 0.5) / (term.docs + 0.5))), 1.0
        )

    def length_norms(self, lengths: NDArray[Any], collection: CollectionStatistics) -> Floats:
        """What the length of each document adds to the denominator."""
        lengths = quantize_lengths(lengths) if self.rounded else lengths
        relative = lengths / max(collection.average_length, 1e-9)
        return np.asarray(self.k1 * (1 - self.b + self.b * relative), np.float32)

    def score(self, term: TermFactors, tfs: NDArray[Any], norms: Floats) -> NDArray[Any]:
        """The score of a term; compiled code computes the same."""
        return np.asarray(term.weight * tfs / (tfs + norms))


@dataclass(frozen=True)
class QL:
    """ln(1 + tf / (mu p)) + ln(mu / (L + mu)), p = (cf + 1) / (tokens + 1); never below 0. Only
    matching terms count: this is Lucene's Dirichlet smoothing, not the textbook's."""

    mu: float = 1000.0
    rounded: bool = False

    def term_factors(self, term: TermStatistics, collection: CollectionStatistics) -> TermFactors:
        """The factors of a term."""
        probability = (term.occurrences + 1) / (collection.tokens + 1)
        return TermFactors(1.0, 1 / (self.mu * probability))

    def length_norms(self, lengths: NDArray[Any], collection: CollectionStatistics) -> Floats:
        """What the length of each document adds for each term."""
        lengths = quantize_lengths(lengths) if self.rounded else lengths
        return np.asarray(np.log(self.mu / (lengths + self.mu)), np.float32)

    def score(self, term: TermFactors, tfs: NDArray[Any], norms: Floats) -> NDArray[Any]:
        """The score of a term; compiled code computes the same."""
        matched = term.weight * (np.log1p(term.scale * tfs) + norms)
        return np.asarray(np.maximum(matched, MIN_TERM_SCORE))


def quantize_lengths(lengths: NDArray[Any]) -> Ints:
    """As Lucene stores a length in one byte: exact up to 40, then four leading bits above 24.

    >>> quantize_lengths(np.array([40, 81, 129, 210])).tolist()
    [40, 80, 128, 200]
    """
    above = np.maximum(lengths.astype(np.int64) - 24, 0)
    dropped_bits = np.maximum(np.frexp(above)[1] - 4, 0)
    return np.where(lengths < 24, lengths, 24 + (above >> dropped_bits << dropped_bits))


WINDOW = 4096
POSTINGS_BLOCK = 128
_BUCKETS = 1024
_LOG_TABLE = 32
_TYPICAL_TF = 8
_RADIX_BITS = 11
_RADIX = 1 << _RADIX_BITS
_ALMOST_NOTHING = np.float32(1e-30)
_U = np.uint64
_CURSOR = np.dtype(
    [
        ("bit", np.uint64),  # of the next posting
        ("next", np.uint64),  # its document, if its delta is zero
        ("delta_bits", np.uint64),  # in this block
        ("tf_bits", np.uint64),
        ("here", np.int64),  # postings left in this block
        ("left", np.int64),  # and in further ones
    ]
)

KIND_BM25 = 0
KIND_QL = 1


class Queries(NamedTuple):
    """Several queries: query i has the terms `offsets[i]` to `offsets[i + 1]`."""

    offsets: Ints  # (Q + 1,)
    starts: Ints  # (query terms,) first words of their postings
    sizes: Ints  # (query terms,) document frequencies
    weights: Floats  # (query terms,)
    scales: Floats  # (query terms,) of query likelihood


class SegmentPostings(NamedTuple):
    """The packed postings of a segment; all arrays are read-only (`as_readonly`)."""

    words: Uints
    lengths: Floats  # (N,) length norms
    live: Bools  # (N,), or empty if no document is deleted


class TopKBuffers(NamedTuple):
    """Output buffers, best first."""

    docs: Uints  # (Q, k)
    scores: Floats  # (Q, k)
    sizes: Ints  # (Q,) results of each query


class _Work(NamedTuple):
    """Buffers for one window of documents."""

    window: Floats  # (WINDOW,) scores
    marks: Bools  # (WINDOW,) scores above the floor
    words: NDArray[np.uint64]  # the same memory, eight marks at a time
    cursors: Any  # (terms,) records of `_CURSOR`
    logs: Floats  # (terms, _LOG_TABLE)


@inner
def _bits(words: Any, bit: Any) -> Any:
    """The 33 bits or more that start at a bit."""
    word = bit >> _U(5)
    return (_U(words[word]) | (_U(words[word + _U(1)]) << _U(32))) >> (bit & _U(31))


@inner
def _next_block(words: Any, cursor: Any) -> None:
    header = _bits(words, cursor.bit)
    cursor.delta_bits = header & _U((1 << WIDTH_BITS) - 1)
    cursor.tf_bits = (header >> _U(WIDTH_BITS)) & _U((1 << WIDTH_BITS) - 1)
    cursor.bit += _U(HEADER_BITS)
    cursor.here = min(cursor.left, POSTINGS_BLOCK)
    cursor.left -= cursor.here


@inner
def _bm25(tf: int, length: Any, term: Any) -> Any:
    count = np.float32(tf)
    return np.divide(term[0] * count, count + length)  # as `/`, without its comparison with zero


@inner
def _ql(tf: int, length: Any, term: Any) -> Any:
    weight, scale, logs = term
    log = logs[tf] if tf < _LOG_TABLE else np.log1p(scale * np.float32(tf))
    return max(weight * (log + length), _ALMOST_NOTHING)


def _make_block_adder(score_term: Compiled) -> Compiled:
    """Compiles a function that adds the scores of a block of postings."""

    @inner
    def add(tf: Any, local: Any, lengths: Any, term: Any, floor: Any, work: Any) -> None:
        score = work.window[local] + score_term(np.int64(tf) + 1, lengths[local], term)
        work.window[local] = score
        work.marks[local] = score > floor

    @inner
    def add_block(
        words: Any, cursor: Any, lengths: Any, base: Any, term: Any, floor: Any, work: Any
    ) -> None:
        """Adds the rest of a block, as far as its documents are in the window. Two postings are
        decoded from one read where they have few bits: most of a search's time goes here."""
        shift, width = cursor.delta_bits, cursor.delta_bits + cursor.tf_bits
        deltas, tfs = (_U(1) << shift) - _U(1), (_U(1) << cursor.tf_bits) - _U(1)  # masks
        size, left, bit = _U(len(lengths)), cursor.here, cursor.bit
        local = cursor.next - base  # may be below zero until a delta is added
        inside = True
        while width <= _U(16) and left >= 2:
            bits = _bits(words, bit)
            inside = local + (bits & deltas) < size
            if not inside:
                break
            local += bits & deltas
            add((bits >> shift) & tfs, local, lengths, term, floor, work)
            local += _U(1)
            bit += width
            left -= 1
            bits >>= width
            inside = local + (bits & deltas) < size
            if not inside:
                break
            local += bits & deltas
            add((bits >> shift) & tfs, local, lengths, term, floor, work)
            local += _U(1)
            bit += width
            left -= 1
        while left and inside:
            step = _bits(words, bit) & deltas
            inside = local + step < size
            if inside:
                local += step
                add(_bits(words, bit + shift) & tfs, local, lengths, term, floor, work)
                local += _U(1)
                bit += width
                left -= 1
        cursor.bit, cursor.next, cursor.here = bit, local + base, left

    return add_block


_add_bm25 = _make_block_adder(_bm25)
_add_ql = _make_block_adder(_ql)


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
    """Stable radix sort of the first n, best first; the result is in the *other* arrays. The bits
    of positive floats have the order of the floats."""
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
def _begin_query(kind: int, queries: Any, first: int, count: int, work: Any) -> Any:
    """Sets the cursors of the query's `count` terms, and the logarithms that query likelihood uses
    often. Returns a bound that few scores exceed."""
    bound = np.float32(0)
    for t in range(count):
        cursor = work.cursors[t]
        cursor.bit = _U(queries.starts[first + t]) << _U(5)
        cursor.next = _U(0)
        cursor.here = 0
        cursor.left = queries.sizes[first + t]
        if kind == KIND_BM25:
            bound += queries.weights[first + t]
        else:
            for tf in range(_LOG_TABLE):
                work.logs[t, tf] = np.log1p(queries.scales[first + t] * np.float32(tf))
            bound += queries.weights[first + t] * work.logs[t, _TYPICAL_TF]
    return bound


@inner
def _score_window(
    kind: int, queries: Any, first: int, count: int, postings: Any, base: int, end: int,
    floor: Any, work: Any,
) -> bool:  # fmt: skip
    """Scores documents `base` to `end` for each term; returns whether any contains one."""
    touched = False
    words, lengths = postings.words, postings.lengths[base:end]
    for t in range(count):
        cursor = work.cursors[t]
        term = queries.weights[first + t], queries.scales[first + t], work.logs[t]
        while cursor.here or cursor.left:
            if not cursor.here:
                _next_block(words, cursor)
            before = cursor.next
            if kind == KIND_BM25:
                _add_bm25(words, cursor, lengths, _U(base), term, floor, work)
            else:
                _add_ql(words, cursor, lengths, _U(base), term, floor, work)
            touched |= cursor.next != before
            if cursor.here:  # the next document is in a later window
                break
    return touched


@inner
def _collect(work: Any, base: int, size: int, floor: Any, scores: Any, docs: Any, kept: int) -> int:
    """Appends the marked documents of a window that are above the floor to the `kept` ones."""
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
    """Writes the top k documents of a segment for each query into `TopKBuffers`."""
    k = best.docs.shape[1]
    docs_in_segment = len(postings.lengths)
    capacity = 3 * WINDOW + 4 * k + 8
    marks = np.zeros(WINDOW, np.bool_)
    most_terms = np.max(np.diff(queries.offsets)) if len(queries.offsets) > 1 else 0
    work = _Work(
        np.zeros(WINDOW, np.float32),
        marks,
        marks.view(np.uint64),
        np.zeros(most_terms, _CURSOR),
        np.zeros((most_terms, _LOG_TABLE), np.float32),
    )
    scores, other_scores = np.empty(capacity, np.float32), np.empty(capacity, np.float32)
    docs, other_docs = np.empty(capacity, np.uint32), np.empty(capacity, np.uint32)
    starts = np.empty(_RADIX, np.int32)
    histogram = np.empty(_BUCKETS + 1, np.int32)

    for query in range(len(queries.offsets) - 1):
        first = queries.offsets[query]
        count = queries.offsets[query + 1] - first
        bound = _begin_query(kind, queries, first, count, work)
        to_bucket = np.float32(_BUCKETS) / max(bound, np.float32(1e-20))  # the last has all above
        histogram[:] = 0
        kept = np.int64(0)  # candidates in `scores` and `docs`
        floor = np.float32(0)  # scores up to it are dropped
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
            # slightly below the edge, so that rounding drops nothing
            floor = max(floor, np.float32(bucket) / to_bucket * np.float32(0.99999))
            if kept + WINDOW + 8 > capacity:  # many similar scores: keep exactly k
                _sort_descending(scores, docs, kept, other_scores, other_docs, starts)
                kept = min(kept, k)
                scores, other_scores = other_scores, scores
                docs, other_docs = other_docs, docs
                if kept == k:  # a later document with the same score has a larger id
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
