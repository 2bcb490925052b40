"""Kernel pooling over stored token embeddings on a CPU, by compiled code: the same scores as
`backends.match.kernel_pool` and a `ScoringHead`."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import Kernels, kernel_runs
from glassrank.backends.cpu import amx
from glassrank.backends.cpu.packed_query import AT_ONCE, Kind, layout
from glassrank.backends.cpu.simd import LANES, LINE
from glassrank.backends.cpu.soft_counts import Pooling, score_documents
from glassrank.backends.cpu.stored_products import Stored
from glassrank.backends.quantization import GROUP, GROUP_BYTES
from glassrank.backends.threads import num_threads, run_parallel
from glassrank.errors import InputError
from glassrank.storage.mapped_arrays import as_readonly

WORTH_A_THREAD = 1500
"""Document tokens, for each sixteen query tokens, that take longer than waking a thread."""

_KINDS: dict[np.dtype[Any], Kind] = {
    np.dtype(np.float32): "simd",
    np.dtype(np.uint16): "bf16",
    np.dtype(np.int8): "int8",
    np.dtype(np.uint8): "simd",  # int3
}


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
        layout(kind, query.shape[1]),
        _stored(rows, first_column, query.shape[1]),
        _pooling(kernels, log, length),
        starts,
        lengths,
    )
    run_parallel(lambda number: score_documents(*job, number, threads, scores), threads)
    return scores


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
