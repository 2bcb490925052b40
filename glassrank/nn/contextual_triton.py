"""The two steps of TK's transformer that PyTorch does not fuse on a GPU.

Attention over documents of any length in one batch, without a mask and without the matrix of
attention in memory; and the sum of a layer's input and output with its norm in one pass.

Needs Triton: nothing imports this file unless the words are on a GPU.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 64
"""Words that attend, and words attended to, at a time."""
_NORM_ROWS = 4


@triton.jit(do_not_specialize=["length"])
def _attend(
    projected: tl.tensor,  # (B, length, 3, heads, size)
    lengths: tl.tensor,  # (B,)
    attended: tl.tensor,  # (B, length, heads, size)
    length: tl.tensor,
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
    words = tl.load(lengths + doc).to(tl.int32)
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


def attend(projected: Tensor, lengths: Tensor, heads: int, scale: float) -> Tensor:
    """Queries, keys and values (B, L, 3 * H * A) of documents, of which the first `lengths` (B,)
    words count, to what these words attend to: (B, L, H * A). Padding becomes zeros."""
    docs, length, width = projected.shape
    size = width // (3 * heads)
    attended = projected.new_empty(docs, length, heads * size)
    if docs and length:
        grid = (triton.cdiv(length, _BLOCK), heads, docs)
        with torch.cuda.device(projected.get_device()):
            _attend[grid](
                projected.contiguous(),
                lengths,
                attended,
                length,
                scale=scale * math.log2(math.e),
                heads=heads,
                size=size,
                padded=max(16, triton.next_power_of_2(size)),
                block=_BLOCK,
                interpreted=not projected.is_cuda,
            )
    return attended


@triton.jit(do_not_specialize=["rows"])
def _add_norm(
    x: tl.tensor,  # (rows, width)
    residual: tl.tensor,  # (rows, width)
    gain: tl.tensor,  # (size,)
    bias: tl.tensor,  # (size,)
    normed: tl.tensor,  # (rows, width)
    rows: tl.tensor,
    size: tl.constexpr,
    width: tl.constexpr,
    padded: tl.constexpr,
    block: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    column = tl.arange(0, padded)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    used = (column < size)[None, :]
    places = row[:, None] * width + column[None, :]
    given = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    given += tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(given, 1) / size  # what lies beyond `size` is zero
    centred = tl.where(used, given - mean[:, None], 0.0)
    deviation = tl.sqrt(tl.sum(centred * centred, 1) / size)
    gains = tl.load(gain + column, mask=column < size, other=0.0).to(tl.float32)
    biases = tl.load(bias + column, mask=column < size, other=0.0).to(tl.float32)
    result = gains[None, :] * (centred / (deviation + 1e-6)[:, None]) + biases[None, :]
    tl.store(normed + places, result, mask=inside)


def add_norm(x: Tensor, residual: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """The norm of x + residual (…, W), over as many columns as there are gains: the columns behind
    them hold zeros and keep them."""
    normed = torch.empty_like(x)
    width = x.shape[-1]
    rows = x.numel() // width
    if rows:
        with torch.cuda.device(x.get_device()):
            _add_norm[(triton.cdiv(rows, _NORM_ROWS),)](
                x,
                residual,
                gain,
                bias,
                normed,
                rows,
                size=len(gain),
                width=width,
                padded=triton.next_power_of_2(width),
                block=_NORM_ROWS,
            )
    return normed
