"""Kernel pooling in one pass over stored documents, compiled: products, soft counts, scores. The
plain form is `backends.match.kernel_pool` and a `ScoringHead`.

Each stored token is read once, and the next document is prefetched meanwhile. Sixteen query tokens
stand side by side in a vector, so nothing is summed across one; two document tokens share each
update of the sums.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from glassrank.backends import cpu
from glassrank.backends.compiled import compiled
from glassrank.backends.configs import FLOOR
from glassrank.backends.cpu import amx, packed_query, simd, simd_math, stored_products
from glassrank.backends.cpu.packed_query import PackedQuery, pack
from glassrank.backends.cpu.simd import (
    LANES,
    LINE,
    aligned_zeros,
    broadcast,
    broadcast_at,
    flush_denormals,
    load,
    load_one,
    pointer,
    restore_denormals,
    store,
    store_one,
    written,
)
from glassrank.backends.cpu.simd_math import (
    exp2,
    exp2_both,
    log,
    maximum,
    minimum,
    multiply_add,
    select_from,
)
from glassrank.backends.cpu.stored_products import (
    CHUNK,
    WORDS_AT_ONCE,
    Scratch,
    Stored,
    configure,
    finish,
    multiply,
    prefetch_row,
    similarity,
)

_FLOOR = np.float32(FLOOR)
_ZERO, _ONE = np.float32(0), np.float32(1)


class Pooling(NamedTuple):
    """Kernels in the order of `kernel_runs` and the weights of their counts, as pointers."""

    curves: Any
    steps: Any
    runs: int
    kernels: int
    constants: Any
    log: Any
    length: Any
    at_least: bool
    centers: Any
    tops: Any
    """The values of `at_least` kernels from their centers on, without their constants."""


@njit
def _distance(similarity: Any, middle: Any, limit: Any) -> Any:
    return maximum(minimum(similarity - middle, limit), broadcast(_ZERO) - limit)


def _counter(at_least: bool) -> Any:
    """Compiled for kernels around their centers, or for `at_least` kernels."""

    @njit(inline="always")
    def add(
        pooling: Any, kernel: int, first: Any, x: Any, second: Any, y: Any, times: Any, sums: Any,
        place: int,
    ) -> int:  # fmt: skip
        """Adds two tokens' values to the sums of one kernel; returns the next kernel."""
        if at_least:
            center, top = broadcast_at(pooling.centers, kernel), broadcast_at(pooling.tops, kernel)
            x = select_from(first, center, top * broadcast(_ONE), x)
            y = select_from(second, center, top * times, y)
        at = place + kernel * LANES
        store(sums, at, load(sums, at) + (x + y))
        return kernel + 1

    @njit(inline="always")
    def count_pair(
        first: Any, second: Any, times: Any, pooling: Any, sums: Any, place: int
    ) -> None:
        """Adds the values of two document tokens to every kernel, the second one `times` times."""
        kernel = 0
        for run in range(pooling.runs):
            above, half, below = (
                pooling.steps[3 * run], pooling.steps[3 * run + 1], pooling.steps[3 * run + 2]
            )  # fmt: skip
            middle = broadcast_at(pooling.curves, 4 * run)
            limit = broadcast_at(pooling.curves, 4 * run + 3)
            x, y = _distance(first, middle, limit), _distance(second, middle, limit)
            curve = broadcast_at(pooling.curves, 4 * run + 1)
            x_low = x_high = exp2(curve * x * x)
            y_low = y_high = exp2(curve * y * y) * times
            kernel = add(pooling, kernel, first, x_low, second, y_low, times, sums, place)
            if above + below > 0:
                slope = broadcast_at(pooling.curves, 4 * run + 2)
                x_root, x_down = exp2_both(slope * x)
                y_root, y_down = exp2_both(slope * y)
                x_up, y_up = x_root * x_root, y_root * y_root
                x_down, y_down = x_down * x_down, y_down * y_down
                for _ in range(above):
                    x_high, y_high = x_high * x_up, y_high * y_up
                    kernel = add(pooling, kernel, first, x_high, second, y_high, times, sums, place)
                if half:
                    x, y = x_high * x_root, y_high * y_root
                    kernel = add(pooling, kernel, first, x, second, y, times, sums, place)
                for _ in range(below):
                    x_low, y_low = x_low * x_down, y_low * y_down
                    kernel = add(pooling, kernel, first, x_low, second, y_low, times, sums, place)

    return count_pair


_count_around, _count_at_least = _counter(at_least=False), _counter(at_least=True)


@njit
def _count(query: Any, stored: Any, pooling: Any, begin: int, words: int, scratch: Any) -> None:
    """Adds the values of a chunk's tokens, two by two; an odd last one counts once."""
    for group in range(query.groups):
        place = group * pooling.kernels * LANES
        for word in range(0, words, 2):
            other = min(word + 1, words - 1)
            first = similarity(query, stored, begin, word, group, scratch)
            second = similarity(query, stored, begin, other, group, scratch)
            times = broadcast(np.float32(other > word))
            if pooling.at_least:
                _count_at_least(first, second, times, pooling, scratch.sums, place)
            else:
                _count_around(first, second, times, pooling, scratch.sums, place)
            prefetch_row(stored, scratch.ahead)


@njit
def _clear(sums: Any, groups: int, pooling: Any) -> None:
    for place in range(groups * pooling.kernels):
        store(sums, place * LANES, broadcast(_ZERO))


@njit
def _read_out(sums: Any, query: Any, pooling: Any, words: int, spare: Any) -> Any:
    """The score of a document of so many tokens from its sums."""
    score = broadcast(_ZERO)
    shorter = broadcast(_ONE / np.float32(words + 1))
    for group in range(query.groups):
        share = broadcast(_ZERO)
        for kernel in range(pooling.kernels):
            at = (group * pooling.kernels + kernel) * LANES
            count = load(sums, at) * broadcast_at(pooling.constants, kernel)
            logarithm = log(maximum(count, broadcast(_FLOOR)))
            share = multiply_add(logarithm, broadcast_at(pooling.log, kernel), share)
            share = multiply_add(count * shorter, broadcast_at(pooling.length, kernel), share)
        score = multiply_add(share, load(query.weights, group * LANES), score)
    store(spare, 0, score)
    total = _ZERO
    for lane in range(LANES):
        total += load_one(spare, lane)
    return total


@njit
def _share(lengths: Any, number: int, threads: int) -> Any:
    """The first and the last document of one thread: all threads get about as many tokens."""
    words = 0  # a loop: numba's own sum would have SciPy's algebra imported when it is loaded
    for length in lengths:
        words += length
    begin, end = words * number // threads, words * (number + 1) // threads
    first = last = done = 0
    for length in lengths:
        first += done < begin
        last += done < end or number + 1 == threads
        done += length
    return first, last


@njit
def _score(
    query: Any, stored: Any, pooling: Any, starts: Any, lengths: Any, first: int, last: int,
    scratch: Any, scores: Any,
) -> None:  # fmt: skip
    query = PackedQuery(
        pointer(query.values), pointer(query.scales), pointer(query.weights), query.groups,
        query.size, query.parts,
    )  # fmt: skip
    stored = Stored(
        pointer(stored.vectors), pointer(stored.scales), stored.scaled, stored.stride,
        stored.column, stored.line, stored.lines,
    )  # fmt: skip
    pooling = Pooling(
        pointer(pooling.curves), pointer(pooling.steps), pooling.runs, pooling.kernels,
        pointer(pooling.constants), pointer(pooling.log), pointer(pooling.length),
        pooling.at_least, pointer(pooling.centers), pointer(pooling.tops),
    )  # fmt: skip
    scratch = Scratch(
        pointer(scratch.wide), pointer(scratch.products), pointer(scratch.sums),
        pointer(scratch.ahead),
    )  # fmt: skip
    before = flush_denormals()
    configured = 0
    for doc in range(first, last):
        row, words = starts[doc], lengths[doc]
        _clear(scratch.sums, query.groups, pooling)
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
        scores[doc] = _read_out(scratch.sums, query, pooling, words, scratch.wide)
    finish(query)
    restore_denormals(before)


def _compiled(*sources: float) -> Any:
    @compiled
    def score_documents(
        query: Any, weights: Any, layout: Any, stored: Any, pooling: Any, starts: Any, lengths: Any,
        number: int, threads: int, scores: Any,
    ) -> None:  # fmt: skip
        """The scores of one thread's share of the documents."""
        _ = sources
        words, size = query.shape
        groups = (words + LANES - 1) // LANES
        width = (size * layout.values.itemsize + LINE - 1) // LINE * LINE // layout.values.itemsize
        packed = PackedQuery(
            aligned_zeros(groups * LANES * width * layout.parts, layout.values),
            aligned_zeros(groups * LANES, query),
            aligned_zeros(groups * LANES, query),
            groups,
            size,
            layout.parts,
        )
        pack(query, packed.values, packed.scales, layout.parts)
        packed.weights[:words] = weights
        scratch = Scratch(
            aligned_zeros(max(LANES, WORDS_AT_ONCE * size), query),
            aligned_zeros(groups * CHUNK * LANES * layout.product_parts, layout.products),
            aligned_zeros(groups * pooling.kernels * LANES, query),
            np.zeros(2, np.int64),
        )
        first, last = _share(lengths, number, threads)
        _score(packed, stored, pooling, starts, lengths, first, last, scratch, scores)

    return score_documents


score_documents = _compiled(*written(amx, cpu, packed_query, simd, simd_math, stored_products))
