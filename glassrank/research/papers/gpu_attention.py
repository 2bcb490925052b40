"""Attention on a GPU, in Triton: `attend` within texts of any length, `cross_attend` of a query's
rows to stored documents, and `look_at_rows` of a text's first row to all of them. None of them
writes the matrix of attention to memory. `backends.attention` has the plain forms: `attend` the
first two, the middle of `attend_unprojected` the third.

Needs Triton: nothing imports this file unless the rows are on a GPU.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_LARGEST_BLOCK = 64
"""Words that attend, and words attended to, at a time."""
_WARPS = {16: 1, 32: 2, 64: 4}
"""For each size of a block."""
_CROSS_BLOCK, _CROSS_WARPS, _CROSS_STAGES = 64, 2, 2
"""Document rows at a time, and how a program works on them: the fastest of those tried on an H200.
"""
_LARGEST_QUERY = 32
"""A program holds so many query rows; a longer query takes several."""
_COLUMNS, _LOOK_WARPS = 128, 2
"""Columns of a row that the first row is compared with at a time."""


@triton.jit(do_not_specialize=["length"])
def _attend(
    projected: tl.tensor,  # (B, length, 3, heads, size)
    lengths: tl.tensor,  # (B,) if masked
    attended: tl.tensor,  # (B, length, heads, size)
    length: tl.tensor,
    masked: tl.constexpr,
    scale: tl.constexpr,
    heads: tl.constexpr,
    size: tl.constexpr,
    padded: tl.constexpr,
    block: tl.constexpr,
    interpreted: tl.constexpr,
) -> None:
    doc, head = tl.program_id(2).to(tl.int64), tl.program_id(1)
    row = tl.program_id(0) * block + tl.arange(0, block)
    channel = tl.arange(0, padded)
    words = tl.load(lengths + doc).to(tl.int32) if masked else length
    stride: tl.constexpr = 3 * heads * size
    first = projected + doc * length * stride + head * size
    used = channel < size
    # Triton's interpreter has no products of bfloat16.
    dtype: tl.constexpr = tl.float32 if interpreted else projected.dtype.element_ty
    best = tl.full((block,), -float("inf"), tl.float32)
    total = tl.zeros((block,), tl.float32)
    sums = tl.zeros((block, padded), tl.float32)
    # A block of padding alone attends to nothing: its rows become zeros.
    words = tl.where(tl.program_id(0) * block < words, words, 0)
    places = first + row[:, None] * stride + channel[None, :]
    query = tl.load(places, mask=(row < words)[:, None] & used[None, :], other=0.0).to(dtype)
    for begin in range(0, words, block):
        other = begin + tl.arange(0, block)
        inside = other < words
        places = first + heads * size + other[None, :] * stride + channel[:, None]
        key = tl.load(places, mask=inside[None, :] & used[:, None], other=0.0).to(dtype)
        places = first + 2 * heads * size + other[:, None] * stride + channel[None, :]
        value = tl.load(places, mask=inside[:, None] & used[None, :], other=0.0).to(dtype)
        scores = tl.dot(query, key, input_precision="ieee") * scale  # (block, block)
        scores = tl.where(inside[None, :], scores, -float("inf"))
        better = tl.maximum(best, tl.max(scores, 1))
        shares = tl.exp2(scores - better[:, None])
        shrink = tl.exp2(best - better)
        total = total * shrink + tl.sum(shares, 1)
        sums = tl.dot(shares.to(dtype), value, sums * shrink[:, None], input_precision="ieee")
        best = better
    result = sums / tl.where(total > 0, total, 1.0)[:, None]
    places = attended + (doc * length + row[:, None]) * heads * size + head * size
    tl.store(places + channel[None, :], result, mask=(row < length)[:, None] & used[None, :])


def attend(projected: Tensor, lengths: Tensor | None, heads: int, scale: float) -> Tensor:
    """Queries, keys and values (B, L, 3 * H * A) of documents, of which the first `lengths` (B,)
    words count, or all, to what these words attend to: (B, L, H * A). Padding becomes zeros."""
    docs, length, width = projected.shape
    size = width // (3 * heads)
    attended = projected.new_empty(docs, length, heads * size)
    block = min(_LARGEST_BLOCK, max(16, triton.next_power_of_2(length)))
    if docs and length:
        grid = (triton.cdiv(length, block), heads, docs)
        with torch.cuda.device(projected.get_device()):
            _attend[grid](
                projected.contiguous(),
                projected if lengths is None else lengths,
                attended,
                length,
                masked=lengths is not None,
                scale=scale * math.log2(math.e),
                heads=heads,
                size=size,
                padded=max(16, triton.next_power_of_2(size)),
                block=block,
                interpreted=not projected.is_cuda,
                num_warps=_WARPS[block],
            )
    return attended


@triton.jit(do_not_specialize=["words", "query_stride"])
def _cross(
    query: tl.tensor,  # (1 or docs, words, heads, size)
    rows: tl.tensor,  # (T, stride)
    scales: tl.tensor,  # (T, vectors) if scaled
    starts: tl.tensor,  # (docs,)
    lengths: tl.tensor,  # (docs,)
    attended: tl.tensor,  # (docs, words, heads, size)
    words: tl.tensor,
    query_stride: tl.tensor,
    scale: tl.constexpr,
    stride: tl.constexpr,
    vectors: tl.constexpr,
    key_vector: tl.constexpr,
    scaled: tl.constexpr,
    heads: tl.constexpr,
    size: tl.constexpr,
    padded: tl.constexpr,
    query_rows: tl.constexpr,
    block: tl.constexpr,
    interpreted: tl.constexpr,
) -> None:
    # Neighbouring programs take the heads of one document: their pieces of a row lie side by side.
    head, doc = tl.program_id(0), tl.program_id(1).to(tl.int64)
    word = tl.program_id(2) * query_rows + tl.arange(0, query_rows)
    channel = tl.arange(0, padded)
    used = channel < size
    # Triton's interpreter has no products of bfloat16.
    dtype: tl.constexpr = tl.float32 if interpreted else query.dtype.element_ty
    width: tl.constexpr = heads * size
    places = word[:, None] * width + head * size + channel[None, :]
    present = (word < words)[:, None] & used[None, :]
    asked = tl.load(query + doc * query_stride + places, mask=present, other=0.0).to(dtype)
    start, length = tl.load(starts + doc).to(tl.int64), tl.load(lengths + doc).to(tl.int32)
    first = rows + start * stride + key_vector * width + head * size
    best = tl.full((query_rows,), -float("inf"), tl.float32)
    total = tl.zeros((query_rows,), tl.float32)
    sums = tl.zeros((query_rows, padded), tl.float32)
    for begin in range(0, length, block):
        row = begin + tl.arange(0, block)
        inside = row < length
        # Rows lie in memory as the products want their channels: keys are turned afterwards.
        at = row[:, None] * stride + channel[None, :]
        wanted = inside[:, None] & used[None, :]
        key = tl.load(first + at, mask=wanted, other=0.0).to(dtype)  # (block, padded)
        value = tl.load(first + width + at, mask=wanted, other=0.0).to(dtype)  # (block, padded)
        scores = tl.dot(asked, tl.trans(key), input_precision="ieee") * scale
        if scaled:
            of_keys = scales + (start + row) * vectors + key_vector
            scores *= tl.load(of_keys, mask=inside, other=0.0)[None, :]
        scores = tl.where(inside[None, :], scores, -float("inf"))  # (query_rows, block)
        better = tl.maximum(best, tl.max(scores, 1))
        shares = tl.exp2(scores - better[:, None])
        shrink = tl.exp2(best - better)
        total = total * shrink + tl.sum(shares, 1)
        if scaled:
            of_values = scales + (start + row) * vectors + key_vector + 1
            shares *= tl.load(of_values, mask=inside, other=0.0)[None, :]
        sums = tl.dot(shares.to(dtype), value, sums * shrink[:, None], input_precision="ieee")
        best = better
    result = sums / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(attended + doc * words * width + places, result, mask=present)


def cross_attend(
    query: Tensor,
    rows: Tensor,
    scales: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    heads: int,
    block: int,
) -> Tensor:
    """What the rows of one query for all, or of one for each document, (1 or B, Q, H), find in
    documents, (B, Q, H). Documents are runs of rows in one tensor, as a store has them: nothing is
    gathered, padded or masked, and each stored row is read once. `rows` (T, S) hold keys and values
    of each block; int8 rows come with as many `scales` (T, V) as they hold vectors. Documents
    without rows give zeros."""
    docs, (_, words, width) = len(starts), query.shape
    attended = query.new_empty(docs, words, width)
    query_rows = min(_LARGEST_QUERY, max(16, triton.next_power_of_2(words)))
    if docs and words:
        grid = (heads, docs, triton.cdiv(words, query_rows))
        with torch.cuda.device(query.get_device()):
            _cross[grid](
                query.contiguous(),
                rows,
                rows if scales is None else scales,
                starts,
                lengths,
                attended,
                words,
                0 if len(query) == 1 else words * width,
                scale=math.log2(math.e) / math.sqrt(width // heads),
                stride=rows.stride(0),
                vectors=1 if scales is None else scales.shape[1],
                key_vector=2 * block,
                scaled=scales is not None,
                heads=heads,
                size=width // heads,
                padded=max(16, triton.next_power_of_2(width // heads)),
                query_rows=query_rows,
                block=_CROSS_BLOCK,
                interpreted=not query.is_cuda,
                num_warps=_CROSS_WARPS,
                num_stages=_CROSS_STAGES,
            )
    return attended


@triton.jit(do_not_specialize=["docs", "words"])
def _look(
    asked: tl.tensor,  # (heads, docs, size)
    rows: tl.tensor,  # (docs, words, size)
    means: tl.tensor,  # (heads, docs, size)
    docs: tl.tensor,
    words: tl.tensor,
    scale: tl.constexpr,
    heads: tl.constexpr,
    size: tl.constexpr,
    padded_heads: tl.constexpr,
    padded_words: tl.constexpr,
    columns: tl.constexpr,
    interpreted: tl.constexpr,
) -> None:
    doc = tl.program_id(0).to(tl.int64)
    head, word = tl.arange(0, padded_heads), tl.arange(0, padded_words)
    dtype: tl.constexpr = tl.float32 if interpreted else rows.dtype.element_ty
    question = asked + (head.to(tl.int64)[:, None] * docs + doc) * size
    answer = means + (head.to(tl.int64)[:, None] * docs + doc) * size
    text = rows + doc * words * size + word[:, None] * size
    scores = tl.zeros((padded_heads, padded_words), tl.float32)
    for begin in range(0, size, columns):
        column = begin + tl.arange(0, columns)
        used = (column < size)[None, :]
        ours = tl.load(question + column[None, :], mask=(head < heads)[:, None] & used, other=0.0)
        theirs = tl.load(text + column[None, :], mask=(word < words)[:, None] & used, other=0.0)
        scores = tl.dot(ours.to(dtype), tl.trans(theirs.to(dtype)), scores, input_precision="ieee")
    scores = tl.where((word < words)[None, :], scores * scale, -float("inf"))
    shares = tl.exp2(scores - tl.max(scores, 1)[:, None])
    shares = (shares / tl.sum(shares, 1)[:, None]).to(dtype)  # (padded_heads, padded_words)
    for begin in range(0, size, columns):
        column = begin + tl.arange(0, columns)
        used = (column < size)[None, :]
        theirs = tl.load(text + column[None, :], mask=(word < words)[:, None] & used, other=0.0)
        mean = tl.dot(shares, theirs.to(dtype), input_precision="ieee")
        tl.store(answer + column[None, :], mean, mask=(head < heads)[:, None] & used)


def look_at_rows(asked: Tensor, rows: Tensor, head_size: int) -> Tensor:
    """Questions (heads, B, H) and rows (B, Q, H) to each head's mean of a text's rows, (heads, B,
    H), weighted by how well they answer. The question of each head has been brought to the rows
    already, and what it finds there is projected later."""
    heads, docs, size = asked.shape
    means = torch.empty_like(asked)
    words = rows.shape[1]
    if docs:
        with torch.cuda.device(rows.get_device()):
            _look[(docs,)](
                asked,
                rows,
                means,
                docs,
                words,
                scale=math.log2(math.e) / math.sqrt(head_size),
                heads=heads,
                size=size,
                padded_heads=max(16, triton.next_power_of_2(heads)),
                padded_words=max(16, triton.next_power_of_2(words)),
                columns=min(_COLUMNS, triton.next_power_of_2(size)),
                interpreted=not rows.is_cuda,
                num_warps=_LOOK_WARPS,
            )
    return means
