"""One pass over stored documents, compiled: products, soft counts, scores.

Each stored word is read once. The similarities of a document and its soft counts never leave the
processor's cache; while they are computed, the next document is on its way from memory.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from glassrank.nn import amx, lanes, packed_query, soft_counts, stored_products, vector_math
from glassrank.nn.lanes import (
    LANES,
    LINE,
    flush_tiny,
    load_one,
    pointer,
    restore,
    room,
    spread,
    store_one,
)
from glassrank.nn.packed_query import PackedQuery, pack
from glassrank.nn.soft_counts import Pooling, clear, count_pair, count_pair_at_least, read_out
from glassrank.nn.stored_products import (
    CHUNK,
    LANE_ROWS,
    Scratch,
    Stored,
    configure,
    fetch_row,
    finish,
    multiply,
    similarity,
)


@njit
def _count(query: Any, stored: Any, pooling: Any, begin: int, words: int, scratch: Any) -> None:
    """Adds what the words of a chunk count for, two by two; a last one without another is there
    twice, and counts once."""
    for group in range(query.groups):
        place = group * pooling.kernels * LANES
        for word in range(0, words, 2):
            other = min(word + 1, words - 1)
            first = similarity(query, stored, begin, word, group, scratch)
            second = similarity(query, stored, begin, other, group, scratch)
            times = spread(np.float32(other > word))
            if pooling.at_least:
                count_pair_at_least(first, second, times, pooling, scratch.sums, place)
            else:
                count_pair(first, second, times, pooling, scratch.sums, place)
            fetch_row(stored, scratch.ahead)


@njit
def _share(lengths: Any, number: int, threads: int) -> Any:
    """The first and the last document of one thread: all threads get about as many words."""
    words = lengths.sum()
    begin, end = words * number // threads, words * (number + 1) // threads
    first = last = done = 0
    for length in lengths:
        first += done < begin
        last += done < end or number + 1 == threads
        done += length
    return first, last


@njit
def _score(
    query: Any,
    stored: Any,
    pooling: Any,
    starts: Any,
    lengths: Any,
    first: int,
    last: int,
    scratch: Any,
    scores: Any,
    counts: Any,
) -> None:
    query = PackedQuery(
        pointer(query.values),
        pointer(query.scales),
        pointer(query.weights),
        query.groups,
        query.size,
        query.parts,
    )
    stored = Stored(
        pointer(stored.vectors),
        pointer(stored.scales),
        stored.scaled,
        stored.stride,
        stored.column,
        stored.line,
        stored.lines,
    )
    pooling = Pooling(
        pointer(pooling.curves),
        pointer(pooling.steps),
        pooling.runs,
        pooling.kernels,
        pointer(pooling.order),
        pointer(pooling.constants),
        pointer(pooling.log),
        pointer(pooling.length),
        pooling.at_least,
        pointer(pooling.borders),
        pointer(pooling.tops),
    )
    scratch = Scratch(
        pointer(scratch.wide),
        pointer(scratch.products),
        pointer(scratch.sums),
        pointer(scratch.ahead),
    )
    before = flush_tiny()
    configured = 0
    for doc in range(first, last):
        row, words = starts[doc], lengths[doc]
        clear(scratch.sums, query.groups, pooling)
        chunks = (words + CHUNK - 1) // CHUNK
        begin = row
        for chunk in range(chunks):
            end = row + words * (chunk + 1) // chunks
            next_row, next_words = end, row + words - end
            if end == row + words and doc + 1 < last:
                next_row, next_words = starts[doc + 1], lengths[doc + 1]
            store_one(scratch.ahead, 0, next_row)
            store_one(scratch.ahead, 1, next_row + min(next_words, CHUNK))
            configured = configure(query, end - begin, configured)
            multiply(query, stored, begin, end - begin, scratch)
            _count(query, stored, pooling, begin, end - begin, scratch)
            begin = end
        scores[doc] = read_out(scratch.sums, query, pooling, words, scratch.wide)
        if len(counts):
            for word in range(counts.shape[1]):
                at = word // LANES * pooling.kernels * LANES + word % LANES
                for place in range(pooling.kernels):
                    kernel = pooling.order[place]
                    counts[doc, word, kernel] = load_one(scratch.sums, at + place * LANES)
    finish(query)
    restore(before)


def _compiled(*sources: float) -> Any:
    """Numba keeps compiled code on disk until this file changes. What a function captures is part
    of the name it is kept under, so a change of the files compiled into it counts, too."""

    @njit(nogil=True, cache=True)
    def score_documents(
        query: Any,
        weights: Any,
        layout: Any,
        stored: Any,
        pooling: Any,
        starts: Any,
        lengths: Any,
        number: int,
        threads: int,
        scores: Any,
        counts: Any,
    ) -> None:
        """One thread's share of the documents: their scores, and their soft counts if there is room
        for them."""
        _ = sources
        words, size = query.shape
        groups = (words + LANES - 1) // LANES
        width = (size * layout.values.itemsize + LINE - 1) // LINE * LINE // layout.values.itemsize
        packed = PackedQuery(
            room(groups * LANES * width * layout.parts, layout.values),
            room(groups * LANES, query),
            room(groups * LANES, query),
            groups,
            size,
            layout.parts,
        )
        pack(query, packed.values, packed.scales, layout.parts)
        packed.weights[:words] = weights
        scratch = Scratch(
            room(max(LANES, LANE_ROWS * size), query),
            room(groups * CHUNK * LANES * layout.product_parts, layout.products),
            room(groups * pooling.kernels * LANES, query),
            np.zeros(2, np.int64),
        )
        first, last = _share(lengths, number, threads)
        _score(packed, stored, pooling, starts, lengths, first, last, scratch, scores, counts)

    return score_documents


score_documents = _compiled(
    *(
        Path(str(module.__file__)).stat().st_mtime
        for module in (amx, lanes, packed_query, soft_counts, stored_products, vector_math)
    )
)
