"""Kernel pooling in one pass over stored documents, compiled: products, soft counts, scores. The
plain form is `backends.match.kernel_pool` and a `ScoringHead`.

Each stored token is read once, and the next document is prefetched meanwhile. Sixteen query tokens
stand side by side in a vector, so nothing is summed across one; two document tokens share each
update of the sums.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from glassrank.backends import cpu
from glassrank.backends.compiled import compiled
from glassrank.backends.configs import FLOOR, Kernels, kernel_runs
from glassrank.backends.cpu import amx, packed_query, simd, simd_math, stored_products
from glassrank.backends.cpu.packed_query import INT8_PARTS, Kind, PackedQuery, pack
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
from glassrank.backends.quantization import GROUP, GROUP_BYTES
from glassrank.backends.threads import num_threads, run_parallel
from glassrank.errors import InputError
from glassrank.storage.mapped_arrays import as_readonly

_FLOOR = np.float32(FLOOR)
_ZERO, _ONE = np.float32(0), np.float32(1)
WORTH_A_THREAD = 1500
"""Document tokens, for each sixteen query tokens, that take longer than waking a thread."""

AT_ONCE: dict[Kind, int] = {"bf16": 32, "int8": 64, "simd": 1}
"""Values of a token that are multiplied at once: no fewer are read."""

_KINDS: dict[np.dtype[Any], Kind] = {
    np.dtype(np.float32): "simd",
    np.dtype(np.uint16): "bf16",
    np.dtype(np.int8): "int8",
    np.dtype(np.uint8): "simd",  # int3
}

_MANY = 128
_BF16, _INT8 = np.empty(0, np.uint16), np.empty(0, np.int8)
_INT32, _FLOAT32 = np.empty(0, np.int32), np.empty(0, np.float32)


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


class QueryLayout(NamedTuple):
    """How a query is packed. The arrays are empty: compiled code needs only their dtypes."""

    values: NDArray[Any]
    products: NDArray[Any]
    parts: int  # of each value
    product_parts: int  # of each product: those of int8 are integers, and stay apart


class StoredRows(NamedTuple):
    """Unit vectors of document tokens, one in each row; zeros may follow them in the row."""

    vectors: NDArray[Any]
    """(T, S) of float32, of bfloat16 as bits in uint16, or of int8; or (T, S / 16 * 6) bytes of
    int3."""
    scales: NDArray[np.float32] | None = None
    """(T,) the scales of rows of int8 or int3."""

    @property
    def values(self) -> int:
        """Values in a row."""
        size: int = self.vectors.shape[1]
        return size // GROUP_BYTES * GROUP if self.vectors.dtype == np.uint8 else size


def pool_cpu(
    query: NDArray[np.float32],
    weights: NDArray[np.float32],
    rows: StoredRows,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kernels: Kernels,
    log: NDArray[np.float32],
    length: NDArray[np.float32],
    *,
    first_column: int = 0,
    threads: int | None = None,
    tiles: bool | None = None,
) -> NDArray[np.float32]:
    """Scores (n,) of documents, by a `ScoringHead` over their soft counts.

    Document i is the rows `starts[i]` to `starts[i] + lengths[i]`, of which the columns from
    `first_column` on meet the query's unit vectors (Q, E) with weights (Q,). There are
    `num_threads` threads by default, or fewer where there is little to do. `tiles` says whether to
    use AMX tiles: None is yes, where the processor has them and the rows are padded for them.
    """
    starts, lengths = _as_int64(starts), _as_int64(lengths)
    _check(query, rows, starts, lengths, first_column)
    kind = _kind(rows, first_column, query.shape[1], tiles)
    scores = np.empty(len(starts), np.float32)
    threads = _threads(threads or num_threads(), len(query), int(lengths.sum()))
    job = (
        np.ascontiguousarray(query, np.float32),
        np.ascontiguousarray(weights, np.float32),
        _layout(kind, query.shape[1]),
        _stored(rows, first_column, query.shape[1]),
        _pooling(kernels, log, length),
        starts,
        lengths,
    )
    run_parallel(lambda number: score_documents(*job, number, threads, scores), threads)
    return scores


def _layout(kind: Kind, size: int) -> QueryLayout:
    """For embeddings of so many values. Three parts of bfloat16 have all bits of float32. Two miss
    up to 2^-18 of each value, in either direction: summed over many values, this is no more than
    float32 loses in the summing."""
    if kind == "bf16":
        return QueryLayout(_BF16, _FLOAT32, 2 if size >= _MANY else 3, 1)
    if kind == "int8":
        return QueryLayout(_INT8, _INT32, INT8_PARTS, INT8_PARTS)
    return QueryLayout(_FLOAT32, _FLOAT32, 1, 1)


def _check(
    query: NDArray[np.float32],
    rows: StoredRows,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    first_column: int,
) -> None:
    """Checks the arguments: compiled code checks nothing."""
    vectors, scales = rows
    if vectors.dtype not in _KINDS or vectors.ndim != 2 or not vectors.flags.c_contiguous:
        raise InputError(
            "stored embeddings must be contiguous rows of float32, of bfloat16 as uint16, of int8, "
            f"or of int3 as uint8, not {vectors.dtype} of {vectors.shape}"
        )
    if (vectors.itemsize == 1) != (scales is not None):
        raise InputError(
            "int8 and int3 embeddings need a scale for each row, and others none, but "
            f"{vectors.dtype} embeddings "
            f"came {'without' if scales is None else 'with'} scales"
        )
    if scales is not None and scales.shape != vectors.shape[:1]:
        raise InputError(f"{len(vectors)} rows need as many scales, not {scales.shape} of them")
    in_groups = vectors.dtype != np.uint8 or first_column % GROUP == 0
    if not 0 <= first_column <= rows.values - query.shape[1] or not in_groups:
        raise InputError(
            f"a query of {query.shape[1]} values does not fit rows of {rows.values} from "
            f"column {first_column} on"
        )
    if starts.shape != lengths.shape or starts.ndim != 1:
        raise InputError(
            f"every document needs a start and a length, not {starts.shape} and {lengths.shape}"
        )
    ends = starts + lengths
    if len(ends) and (starts.min() < 0 or lengths.min() < 0 or ends.max() > len(vectors)):
        raise InputError(
            f"some documents lie outside of the {len(vectors)} rows; give the starts and lengths "
            "that belong to them"
        )


def _kind(rows: StoredRows, first_column: int, size: int, tiles: bool | None) -> Kind:
    kind = _KINDS[rows.vectors.dtype]
    # Tiles read a fixed number of values at a time.
    padded = first_column + -(-size // AT_ONCE[kind]) * AT_ONCE[kind] <= rows.vectors.shape[1]
    possible = kind != "simd" and padded and amx.usable()
    if tiles and not possible:
        raise InputError(
            "tiles need a processor with AMX, and rows of bfloat16 or int8 that are padded to "
            "a multiple of 64 bytes; leave the choice open"
        )
    return kind if possible and tiles is not False else "simd"


def _stored(rows: StoredRows, first_column: int, size: int) -> Stored:
    scales = np.ones(1, np.float32) if rows.scales is None else rows.scales
    width = float(rows.vectors.itemsize)
    if rows.vectors.dtype == np.uint8:
        width = GROUP_BYTES / GROUP
    line = int(LINE / width) // GROUP * GROUP
    return Stored(
        vectors=as_readonly(rows.vectors.reshape(-1)),
        scales=as_readonly(np.ascontiguousarray(scales, np.float32)),
        scaled=rows.scales is not None,
        stride=rows.values,
        column=first_column,
        line=line,
        lines=-(-size // line),
    )


def _as_int64(array: NDArray[Any]) -> NDArray[np.int64]:
    return as_readonly(np.ascontiguousarray(array, np.int64))


def _pooling(kernels: Kernels, log: NDArray[np.float32], length: NDArray[np.float32]) -> Pooling:
    runs = kernel_runs(kernels)
    order = runs.kernels
    return Pooling(
        curves=runs.curves,
        steps=runs.steps,
        runs=len(runs.steps) // 3,
        kernels=len(order),
        constants=runs.constants,
        log=np.asarray(log, np.float32)[order],
        length=np.asarray(length, np.float32)[order],
        at_least=kernels.at_least,
        centers=np.asarray(kernels.centers, np.float32)[order],
        tops=1 / runs.constants,
    )


def _threads(most: int, query_words: int, doc_words: int) -> int:
    """As many as there is enough work for."""
    work = -(-query_words // LANES) * doc_words
    return max(1, min(most, work // WORTH_A_THREAD))
