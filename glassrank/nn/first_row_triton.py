"""What a text's first row sees in all rows, for many short texts at once on a GPU.

The middle of `attention.attend_unprojected`: the question of each head has been brought to the rows
already, and what it finds there is projected later. A program takes a text, whose rows are read
once from memory, and again from the cache.

Needs Triton: nothing imports this file unless the rows are on a GPU.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_COLUMNS, _WARPS = 128, 2


@triton.jit(do_not_specialize=["docs", "words"])
def _look(
    asked: tl.tensor,  # (heads, docs, size)
    rows: tl.tensor,  # (docs, words, size)
    found: tl.tensor,  # (heads, docs, size)
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
    answer = found + (head.to(tl.int64)[:, None] * docs + doc) * size
    own = rows + doc * words * size + word[:, None] * size
    scores = tl.zeros((padded_heads, padded_words), tl.float32)
    for begin in range(0, size, columns):
        column = begin + tl.arange(0, columns)
        used = (column < size)[None, :]
        ours = tl.load(question + column[None, :], mask=(head < heads)[:, None] & used, other=0.0)
        theirs = tl.load(own + column[None, :], mask=(word < words)[:, None] & used, other=0.0)
        scores = tl.dot(ours.to(dtype), tl.trans(theirs.to(dtype)), scores, input_precision="ieee")
    scores = tl.where((word < words)[None, :], scores * scale, -float("inf"))
    shares = tl.exp2(scores - tl.max(scores, 1)[:, None])
    shares = (shares / tl.sum(shares, 1)[:, None]).to(dtype)  # (padded_heads, padded_words)
    for begin in range(0, size, columns):
        column = begin + tl.arange(0, columns)
        used = (column < size)[None, :]
        theirs = tl.load(own + column[None, :], mask=(word < words)[:, None] & used, other=0.0)
        mean = tl.dot(shares, theirs.to(dtype), input_precision="ieee")
        tl.store(answer + column[None, :], mean, mask=(head < heads)[:, None] & used)


def look_at_rows(asked: Tensor, rows: Tensor, head_size: int) -> Tensor:
    """Questions (heads, B, H) and rows (B, Q, H) to each head's mean of a text's rows, (heads, B,
    H), weighted by how well they answer."""
    heads, docs, size = asked.shape
    found = torch.empty_like(asked)
    words = rows.shape[1]
    if docs:
        with torch.cuda.device(rows.get_device()):
            _look[(docs,)](
                asked,
                rows,
                found,
                docs,
                words,
                scale=math.log2(math.e) / math.sqrt(head_size),
                heads=heads,
                size=size,
                padded_heads=max(16, triton.next_power_of_2(heads)),
                padded_words=max(16, triton.next_power_of_2(words)),
                columns=min(_COLUMNS, triton.next_power_of_2(size)),
                interpreted=not rows.is_cuda,
                num_warps=_WARPS,
            )
    return found
