"""Kernel pooling over stored document words on the CPU, by compiled code: the same scores as
`kernel_pool` and a model's readout of its counts."""

from itertools import pairwise
from threading import Thread
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.nn import amx
from glassrank.nn.document_pass import score_documents
from glassrank.nn.kernel_runs import kernel_runs
from glassrank.nn.kernels import Kernels
from glassrank.nn.lanes import LANES
from glassrank.nn.packed_query import AT_ONCE, INT8_PARTS, Kind, PackedQuery, pack_query
from glassrank.nn.soft_counts import Pooling
from glassrank.nn.stored_products import CHUNK, LANE_ROWS, Scratch, Stored

WORTH_A_THREAD = 6000
"""Document words, for each sixteen query words, that take longer than starting a thread."""

_LINE = 64
"""Bytes in a line of the cache."""

_CONFIGS = amx.tile_configs().reshape(-1)

_KINDS: dict[str, Kind] = {"float32": "lanes", "uint16": "bf16", "int8": "int8"}


class StoredRows(NamedTuple):
    """Unit vectors of document words, one in each row; zeros may follow them in the row."""

    vectors: NDArray[Any]
    """(T, S) of float32, of bfloat16 as its bits in uint16, or of int8."""
    scales: NDArray[np.float32] | None = None
    """(T,) what rows of int8 are to be multiplied with."""


@overload
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
    first_column: int = ...,
    counts: Literal[False] = ...,
    threads: int | None = ...,
    tiles: bool | None = ...,
) -> NDArray[np.float32]: ...


@overload
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
    first_column: int = ...,
    counts: Literal[True],
    threads: int | None = ...,
    tiles: bool | None = ...,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...


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
    counts: bool = False,
    threads: int | None = None,
    tiles: bool | None = None,
) -> NDArray[np.float32] | tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scores (n,) of documents, as a `Readout` of their soft counts says, and where asked for the
    counts (n, Q, K).

    Document i is the rows `starts[i]` to `starts[i] + lengths[i]`, of which the columns from
    `first_column` on meet the query's unit vectors (Q, E) with weights (Q,). `threads` are as many
    as torch has, or fewer where there is little to do. `tiles` says whether to use the processor's
    matrix tiles: None is yes, where there are any and the rows are padded for them.
    """
    starts, lengths = _whole_numbers(starts), _whole_numbers(lengths)
    _check(query, rows, starts, lengths, first_column)
    kind = _kind(rows, first_column, query.shape[1], tiles)
    packed = pack_query(query, weights, kind)
    stored = _stored(rows, first_column, query.shape[1])
    order, pooling = _pooling(kernels, log, length)
    scores = np.empty(len(starts), np.float32)
    soft = np.empty((len(starts) if counts else 0, len(query), len(kernels)), np.float32)

    def work(first: int, last: int, scratch: Scratch) -> None:
        score_documents(
            packed, stored, pooling, order, starts, lengths, first, last, scratch, scores, soft
        )

    shares = _shares(lengths, threads or torch.get_num_threads(), packed.groups)
    jobs = [(*share, _scratch(kind, packed, pooling)) for share in shares]
    others = [Thread(target=work, args=job) for job in jobs[1:]]
    for other in others:
        other.start()
    work(*jobs[0])
    for other in others:
        other.join()
    return (scores, soft) if counts else scores


def _check(
    query: NDArray[np.float32],
    rows: StoredRows,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    first_column: int,
) -> None:
    """Compiled code checks nothing, so what it could read by mistake is refused here."""
    vectors, scales = rows
    if vectors.dtype.name not in _KINDS or vectors.ndim != 2 or not vectors.flags.c_contiguous:
        raise InputError(
            "stored words must be rows of float32, of bfloat16 as uint16, or of int8, one after "
            f"another in memory, not {vectors.dtype} of shape {vectors.shape}"
        )
    if (vectors.dtype == np.int8) != (scales is not None):
        raise InputError(
            f"int8 words need a scale for each row, and others none, but {vectors.dtype} words "
            f"came {'without' if scales is None else 'with'} scales"
        )
    if scales is not None and scales.shape != vectors.shape[:1]:
        raise InputError(f"{len(vectors)} rows need as many scales, not {scales.shape} of them")
    if not 0 <= first_column <= vectors.shape[1] - query.shape[1]:
        raise InputError(
            f"a query of {query.shape[1]} values does not fit rows of {vectors.shape[1]} from "
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
    kind = _KINDS[rows.vectors.dtype.name]
    # Tiles read whole steps of values, the last one too.
    padded = first_column + -(-size // AT_ONCE[kind]) * AT_ONCE[kind] <= rows.vectors.shape[1]
    possible = kind != "lanes" and padded and amx.usable()
    if tiles and not possible:
        raise InputError(
            "tiles need a processor with AMX, and rows of bfloat16 or int8 that are padded to "
            "a multiple of 64 bytes; leave the choice open"
        )
    return kind if possible and tiles is not False else "lanes"


def _stored(rows: StoredRows, first_column: int, size: int) -> Stored:
    scales = np.ones(1, np.float32) if rows.scales is None else rows.scales
    stride, width = rows.vectors.shape[1], rows.vectors.itemsize
    return Stored(
        vectors=_frozen(rows.vectors.reshape(-1)),
        scales=_frozen(np.ascontiguousarray(scales, np.float32)),
        scaled=rows.scales is not None,
        stride=stride,
        column=first_column,
        line=_LINE // width,
        lines=-(-size * width // _LINE),
    )


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A view that may not be written to: a type of its own for numba, which compiles anew for each.
    Arrays in files are of that type anyway."""
    view = array.view()
    view.flags.writeable = False
    return view


def _whole_numbers(array: NDArray[Any]) -> NDArray[np.int64]:
    return _frozen(np.ascontiguousarray(array, np.int64))


def _pooling(
    kernels: Kernels, log: NDArray[np.float32], length: NDArray[np.float32]
) -> tuple[NDArray[np.int64], Pooling]:
    runs = kernel_runs(kernels)
    order = runs.kernels
    pooling = Pooling(
        curves=runs.curves,
        steps=runs.steps,
        runs=len(runs.steps) // 3,
        kernels=len(order),
        constants=runs.constants,
        log=np.asarray(log, np.float32)[order],
        length=np.asarray(length, np.float32)[order],
    )
    return order, pooling


def _scratch(kind: Kind, query: PackedQuery, pooling: Pooling) -> Scratch:
    """From torch, whose memory begins at a line of the cache."""
    tile_parts, dtype = (INT8_PARTS, torch.int32) if kind == "int8" else (1, torch.float32)
    return Scratch(
        configs=_CONFIGS,
        wide=torch.zeros(max(LANES, LANE_ROWS * query.size)).numpy(),
        products=torch.zeros(tile_parts * query.groups * CHUNK * LANES, dtype=dtype).numpy(),
        sums=torch.zeros(query.groups * pooling.kernels * LANES).numpy(),
        ahead=np.zeros(2, np.int64),
    )


def _shares(lengths: NDArray[np.int64], threads: int, groups: int) -> list[tuple[int, int]]:
    """Documents from the first to the last for each thread, with about as many words in each."""
    done = np.concatenate([[0], np.cumsum(lengths)])  # (n + 1,)
    threads = max(1, min(threads, int(done[-1]) * groups // WORTH_A_THREAD))
    ends = np.searchsorted(done, done[-1] * np.arange(1, threads) / threads)
    bounds = [0, *ends.tolist(), len(lengths)]
    return list(pairwise(bounds))
