"""Soft counts from stored vectors, in Triton: what a program of `gpu/kernels.py` does with a block.

Functions here work on tensors in registers. What a compiler must know beforehand comes as a
constant; collections are tuples, whose loops are unrolled.

Needs Triton: nothing imports this file unless the words are on a GPU.
"""

import triton
import triton.language as tl

NEVER = tl.constexpr(-1e4)
"""Added to an exponent where no word stands, which makes the kernel's value zero."""


@triton.jit
def read_query(
    query: tl.tensor,
    row: tl.tensor,
    words: tl.tensor,
    size: tl.constexpr,
    columns: tl.constexpr,
    parts: tl.constexpr,
    dtype: tl.constexpr,
) -> tl.tensor:
    """The query in pieces of columns, each (rows, columns), with zeros where it has none; the
    parts of a piece follow each other. Parts of eight bits are digits: 127ths, then 254ths."""
    pieces: tl.tuple = ()
    for number in tl.static_range((size + columns - 1) // columns):
        column = number * columns + tl.arange(0, columns)
        given = (row < words)[:, None] & (column < size)[None, :]
        rest = tl.load(query + row[:, None] * size + column[None, :], mask=given, other=0.0)
        rest = rest.to(tl.float32)
        for part in tl.static_range(parts):
            if dtype == tl.int8:
                rest = rest * (127 if part == 0 else 254)
                digit = tl.floor(rest + 0.5)
                pieces += (digit.to(dtype),)
                rest -= digit
            else:
                pieces += (rest.to(dtype),)
                rest -= rest.to(dtype).to(tl.float32)
    return pieces


@triton.jit
def cosines(
    pieces: tl.tensor,
    places: tl.tensor,
    inside: tl.tensor,
    width: tl.constexpr,
    columns: tl.constexpr,
    parts: tl.constexpr,
    dtype: tl.constexpr,
) -> tl.tensor:
    """Query words times a block of document words. Columns from `width` on are not read; those
    between the query's size and `width` meet the query's zeros."""
    rows: tl.constexpr = pieces[0].shape[0]
    cosines = tl.zeros((rows, places.shape[0]), tl.float32)
    digits: tl.tuple = ()
    for _ in tl.static_range(parts):
        digits += (tl.zeros((rows, places.shape[0]), tl.int32),)
    for number in tl.static_range(len(pieces) // parts):
        column = number * columns + tl.arange(0, columns)
        given = inside[None, :]
        if (number + 1) * columns > width:
            given = given & (column < width)[:, None]
        block = tl.load(places[None, :] + column[:, None], mask=given, other=0).to(dtype)
        more: tl.tuple = ()
        for part in tl.static_range(parts):
            piece = pieces[number * parts + part]
            if dtype == tl.int8:
                more += (tl.dot(piece, block, digits[part], out_dtype=tl.int32),)
            else:
                cosines = tl.dot(piece, block, cosines, input_precision="ieee")
        if dtype == tl.int8:
            digits = more
    if dtype == tl.int8:
        for part in tl.static_range(parts):
            cosines += digits[parts - 1 - part].to(tl.float32)
            cosines *= 1 / 127 if part == parts - 1 else 1 / 254
    return cosines


@triton.jit
def _values_of_run(
    cosines: tl.tensor,
    never: tl.tensor,
    number: tl.constexpr,
    curves: tl.constexpr,
    steps: tl.constexpr,
) -> tl.tensor:
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
    cosines: tl.tensor,
    inside: tl.tensor,
    curves: tl.constexpr,
    steps: tl.constexpr,
    at_least: tl.constexpr,
    centers: tl.constexpr,
    tops: tl.constexpr,
) -> tl.tensor:
    """A tensor like the cosines for each kernel, run by run, without the constants of the runs
    (see `nn.kernel_runs`). With `at_least`, kernels keep their top values from their
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
