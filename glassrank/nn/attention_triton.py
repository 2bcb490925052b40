"""Attention over texts of any length in one batch on a GPU: without a mask, and without the matrix
of attention in memory.

Needs Triton: nothing imports this file unless the words are on a GPU.
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
