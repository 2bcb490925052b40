"""Kernel pooling over stored token embeddings on a GPU, in Triton; the plain form is
`backends.match.kernel_pool` and a `ScoringHead`.

A program takes a document, a run of rows: blocks of words are copied into fast memory while the
block before is multiplied with the query and summed up. Similarities never leave the registers.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from glassrank.backends.configs import FLOOR, LARGEST_COSINE, Kernels, kernel_runs
from glassrank.errors import InputError

NEVER = tl.constexpr(-1e4)
"""Added to an exponent where no word stands, which makes the kernel's value zero."""

_COLUMNS = 64  # vectors are multiplied in blocks of so many columns
_LARGEST_QUERY = 32
"""A program holds so many query words; a longer query takes several, whose scores are added."""


@triton.jit
def read_query(
    query: tl.tensor, row: tl.tensor, words: tl.tensor, size: tl.constexpr, columns: tl.constexpr,
    parts: tl.constexpr, dtype: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The query in blocks of columns, each (rows, columns), padded with zeros; the parts of a block
    follow each other. Parts of eight bits are digits: 127ths, then 254ths."""
    slices: tl.tuple = ()
    for number in tl.static_range((size + columns - 1) // columns):
        column = number * columns + tl.arange(0, columns)
        given = (row < words)[:, None] & (column < size)[None, :]
        rest = tl.load(query + row[:, None] * size + column[None, :], mask=given, other=0.0)
        rest = rest.to(tl.float32)
        for part in tl.static_range(parts):
            if dtype == tl.int8:
                rest = rest * (127 if part == 0 else 254)
                digit = tl.floor(rest + 0.5)
                slices += (digit.to(dtype),)
                rest -= digit
            else:
                slices += (rest.to(dtype),)
                rest -= rest.to(dtype).to(tl.float32)
    return slices


@triton.jit
def cosines(
    slices: tl.tensor, places: tl.tensor, inside: tl.tensor, width: tl.constexpr,
    columns: tl.constexpr, parts: tl.constexpr, dtype: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Query words times a block of document words. Columns from `width` on are not read; those
    between the query's size and `width` meet the query's zeros."""
    rows: tl.constexpr = slices[0].shape[0]
    cosines = tl.zeros((rows, places.shape[0]), tl.float32)
    digits: tl.tuple = ()
    for _ in tl.static_range(parts):
        digits += (tl.zeros((rows, places.shape[0]), tl.int32),)
    for number in tl.static_range(len(slices) // parts):
        column = number * columns + tl.arange(0, columns)
        given = inside[None, :]
        if (number + 1) * columns > width:
            given = given & (column < width)[:, None]
        block = tl.load(places[None, :] + column[:, None], mask=given, other=0).to(dtype)
        more: tl.tuple = ()
        for part in tl.static_range(parts):
            slice_ = slices[number * parts + part]
            if dtype == tl.int8:
                more += (tl.dot(slice_, block, digits[part], out_dtype=tl.int32),)
            else:
                cosines = tl.dot(slice_, block, cosines, input_precision="ieee")
        if dtype == tl.int8:
            digits = more
    if dtype == tl.int8:
        for part in tl.static_range(parts):
            cosines += digits[parts - 1 - part].to(tl.float32)
            cosines *= 1 / 127 if part == parts - 1 else 1 / 254
    return cosines


@triton.jit
def _values_of_run(
    cosines: tl.tensor, never: tl.tensor, number: tl.constexpr, curves: tl.constexpr,
    steps: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    limit: tl.constexpr = curves[4 * number + 3]
    above: tl.constexpr = steps[3 * number]
    half: tl.constexpr = steps[3 * number + 1]
    below: tl.constexpr = steps[3 * number + 2]
    x = cosines - curves[4 * number]
    if limit > 0:
        x = tl.minimum(tl.maximum(x, -limit), limit)
    middle = tl.exp2(x * curves[4 * number + 1] * x + never)
    values: tl.tuple = (middle,)
    if above + below > 0:
        root = tl.exp2(x * curves[4 * number + 2])
        down = tl.exp2(x * -curves[4 * number + 2])
        value = middle
        for _ in tl.static_range(above):
            value = value * (root * root)
            values += (value,)
        if half > 0:
            values += (value * root,)
        value = middle
        for _ in tl.static_range(below):
            value = value * (down * down)
            values += (value,)
    return values


@triton.jit
def kernel_values(
    cosines: tl.tensor, inside: tl.tensor, curves: tl.constexpr, steps: tl.constexpr,
    at_least: tl.constexpr, centers: tl.constexpr, tops: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """A tensor like the cosines for each kernel, run by run, without the constants of the runs
    (see `backends.configs`). With `at_least`, kernels keep their top values from their
    centers on."""
    never = tl.where(inside, 0.0, NEVER)[None, :]
    values: tl.tuple = ()
    for number in tl.static_range(len(steps) // 3):
        values += _values_of_run(cosines, never, number, curves, steps)
    if at_least:
        risen: tl.tuple = ()
        for number in tl.static_range(len(centers)):
            there = inside[None, :] & (cosines >= centers[number])
            risen += (tl.where(there, tops[number], values[number]),)
        values = risen
    return values


@dataclass(frozen=True)
class Tuning:
    """How the work is cut up."""

    block: int = 32
    """Document words at a time."""
    warps: int = 2
    stages: int = 2
    programs: int = 0
    """They take documents in turn; 0 stands for one program for each document."""
    parts: int = 2
    """The query is a sum of so many parts of the stored type, to be more exact than that is."""


_FASTEST = {
    torch.float32: Tuning(warps=4, parts=1),
    torch.float16: Tuning(stages=3),
    torch.bfloat16: Tuning(stages=3),
    torch.int8: Tuning(programs=660, parts=3),
}
"""For each type that words are stored in, the fastest of those tried on an H200."""


@triton.jit(do_not_specialize=["docs", "words"])
def _pool(
    query: tl.tensor,  # (words, size)
    weights: tl.tensor,  # (words,)
    vectors: tl.tensor,  # (rows, stride)
    scales: tl.tensor,  # (rows,) if scaled
    starts: tl.tensor,  # (docs,)
    lengths: tl.tensor,  # (docs,)
    log: tl.tensor,  # (K,)
    length: tl.tensor,  # (K,)
    scores: tl.tensor,  # (programs along the query, docs)
    docs: tl.tensor, words: tl.tensor, size: tl.constexpr, stride: tl.constexpr,
    first_column: tl.constexpr, width: tl.constexpr, columns: tl.constexpr, parts: tl.constexpr,
    scaled: tl.constexpr, curves: tl.constexpr, steps: tl.constexpr, kernels: tl.constexpr,
    constants: tl.constexpr, at_least: tl.constexpr, centers: tl.constexpr, tops: tl.constexpr,
    floor: tl.constexpr, rows: tl.constexpr, block: tl.constexpr, lanes: tl.constexpr,
    interpreted: tl.constexpr,
) -> None:  # fmt: skip
    stored: tl.constexpr = vectors.dtype.element_ty
    # Triton's interpreter has no products of bfloat16.
    dtype: tl.constexpr = tl.float32 if interpreted and stored == tl.bfloat16 else stored
    row = tl.program_id(1) * rows + tl.arange(0, rows)
    slices = read_query(query, row, words, size, columns, parts, dtype)
    weight = tl.load(weights + row, mask=row < words, other=0.0)  # (rows,)
    for doc in range(tl.program_id(0), docs, tl.num_programs(0)):
        doc_length = tl.load(lengths + doc).to(tl.int32)
        start = tl.load(starts + doc).to(tl.int64)
        sums: tl.tuple = ()
        for _ in tl.static_range(len(kernels)):
            sums += (tl.zeros((rows, lanes), tl.float32),)
        for begin in range(0, doc_length, block):
            word = begin + tl.arange(0, block)
            inside = word < doc_length
            places = vectors + start * stride + first_column + word * stride
            similarity = cosines(slices, places, inside, width, columns, parts, dtype)
            if scaled:
                similarity *= tl.load(scales + start + word, mask=inside, other=0.0)[None, :]
            values = kernel_values(similarity, inside, curves, steps, at_least, centers, tops)
            # Tensor cores leave two neighbouring words in one thread, and again two more after
            # every 2 * lanes words: these add up without leaving the thread. What is left to add
            # between threads waits for the end of the document.
            more: tl.tuple = ()
            for number in tl.static_range(len(kernels)):
                value = tl.reshape(values[number], (rows, block // (2 * lanes), lanes, 2))
                more += (sums[number] + tl.sum(tl.sum(value, 3), 1),)
            sums = more
        total = tl.zeros((rows,), tl.float32)
        for number in tl.static_range(len(kernels)):
            count = tl.sum(sums[number], 1) * constants[number]  # (rows,)
            total += tl.load(log + kernels[number]) * tl.log(tl.maximum(count, floor))
            total += tl.load(length + kernels[number]) * (count / (doc_length + 1))
        tl.store(scores + tl.program_id(1) * docs + doc, tl.sum(total * weight, 0))


def pool_triton(
    query: Tensor,
    weights: Tensor,
    vectors: Tensor,
    scales: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    kernels: Kernels,
    log: Tensor,
    length: Tensor,
    *,
    first_column: int = 0,
    tuning: Tuning | None = None,
) -> Tensor:
    """Scores (n,) of documents: sum over query words q and kernels k of

        weight_q (log_k ln max(count, FLOOR) + length_k count / (document length + 1))

    `query` (Q, E) and the rows of `vectors` (T, S) are unit vectors; rows in eight bits come with
    `scales` (T,). Document i is the `lengths[i]` rows from `starts[i]` on, of which the E columns
    from `first_column` on take part.
    """
    if vectors.dtype not in _FASTEST or (scales is not None) != (vectors.dtype == torch.int8):
        raise InputError(
            "stored vectors are float32, float16, bfloat16, or int8 with scales; "
            f"these are {vectors.dtype} {'without' if scales is None else 'with'} scales"
        )
    tuning = tuning or _FASTEST[vectors.dtype]
    words, size = query.shape
    docs, rows = len(starts), 16 if words <= 16 else _LARGEST_QUERY
    groups = triton.cdiv(max(words, 1), rows)
    scores = torch.empty(groups, docs, device=vectors.device)  # (groups, n)
    if docs:
        with torch.cuda.device(vectors.get_device()):
            _pool[(min(docs, tuning.programs or docs), groups)](
                query.contiguous(),
                weights.float(),
                vectors,
                weights if scales is None else scales,
                starts,
                lengths,
                log.float(),
                length.float(),
                scores,
                docs,
                words,
                size=size,
                stride=vectors.stride(0),
                first_column=first_column,
                # Whole loads may run a little into the columns behind, as far as there are any.
                width=min(triton.cdiv(size, 16) * 16, vectors.shape[1] - first_column),
                columns=_COLUMNS,
                parts=tuning.parts,
                scaled=scales is not None,
                **_constants(kernels),
                floor=FLOOR,
                rows=rows,
                block=tuning.block,
                lanes=4 * (tuning.warps if tuning.block > rows else tuning.warps * 16 // rows),
                interpreted=not vectors.is_cuda,
                num_warps=tuning.warps,
                num_stages=tuning.stages,
            )
    return scores.sum(0) if groups > 1 else scores[0]  # (n,)


@cache
def _constants(kernels: Kernels) -> dict[str, Any]:
    """What `kernel_runs` found, as tuples; a limit of 0 says that no cosine reaches it."""
    runs = kernel_runs(kernels)
    curves = runs.curves.tolist()
    for at in range(0, len(curves), 4):
        if curves[at + 3] >= LARGEST_COSINE + abs(curves[at]):
            curves[at + 3] = 0.0
    return {
        "curves": tuple(curves),
        "steps": tuple(runs.steps.tolist()),
        "kernels": tuple(runs.kernels.tolist()),
        "constants": tuple(runs.constants.tolist()),
        "at_least": kernels.at_least,
        "centers": tuple(kernels.centers[k] for k in runs.kernels.tolist()),
        "tops": tuple((1 / runs.constants).tolist()),
    }
