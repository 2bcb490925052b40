"""Attention of a query's rows to stored documents on a GPU: each stored row is read once.

Documents are runs of rows in one tensor, as a store has them: nothing is gathered, padded or
masked. A row holds, for each interaction block, a key and a value for all heads side by side.

Needs Triton: nothing imports this file unless the rows are on a GPU.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK, _WARPS, _STAGES = 64, 2, 2
"""Document rows at a time, and how a program works on them: the fastest of those tried on an H200.
"""
_LARGEST_QUERY = 32
"""A program holds so many query rows; a longer query takes several."""


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
            own = scales + (start + row) * vectors + key_vector
            scores *= tl.load(own, mask=inside, other=0.0)[None, :]
        scores = tl.where(inside[None, :], scores, -float("inf"))  # (query_rows, block)
        better = tl.maximum(best, tl.max(scores, 1))
        shares = tl.exp2(scores - better[:, None])
        shrink = tl.exp2(best - better)
        total = total * shrink + tl.sum(shares, 1)
        if scaled:
            own = scales + (start + row) * vectors + key_vector + 1
            shares *= tl.load(own, mask=inside, other=0.0)[None, :]
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
    documents, (B, Q, H). `rows` (T, S) hold keys and values of each block; int8 rows come with as
    many `scales` (T, V) as they hold vectors. Documents without rows give zeros."""
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
                block=_BLOCK,
                interpreted=not query.is_cuda,
                num_warps=_WARPS,
                num_stages=_STAGES,
            )
    return attended
