"""A linear layer for a handful of rows on a GPU, with the norm before it and the sum after it.

One query is so little work that a GPU spends its time between the steps. Here a step takes its rows
as they were before their norm, and normalises them itself: a layer of BERT becomes five steps in
place of eleven.

Needs Triton: nothing imports this file unless the rows are on a GPU.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

_COLUMNS = 16
"""Outputs of one program: few, so that all of the GPU reads the weights."""
_BLOCK, _WARPS, _STAGES = 256, 4, 3
"""Inputs at a time, and how a program works on them: the fastest of those tried on an H200."""


class Rows(NamedTuple):
    """Rows (Q, H) of which the norm is meant; without one, they are meant as they are."""

    values: Tensor
    norm: nn.LayerNorm | None = None


@triton.jit
def _spread(rows: tl.tensor, row: tl.tensor, words: tl.tensor, size: tl.constexpr,
            padded: tl.constexpr, epsilon: tl.constexpr) -> tl.tuple:  # fmt: skip
    """Mean and one over the deviation of each row."""
    column = tl.arange(0, padded)
    inside = (row < words)[:, None] & (column < size)[None, :]
    given = tl.load(rows + row[:, None] * size + column[None, :], mask=inside, other=0.0)
    given = given.to(tl.float32)
    mean = tl.sum(given, 1) / size
    centred = tl.where(inside, given - mean[:, None], 0.0)
    return mean, tl.rsqrt(tl.sum(centred * centred, 1) / size + epsilon)


@triton.jit
def _normed(values: tl.tensor, mean: tl.tensor, inverse: tl.tensor, gain: tl.tensor,
            bias: tl.tensor, column: tl.tensor, size: tl.constexpr) -> tl.tensor:  # fmt: skip
    used = column < size
    gains = tl.load(gain + column, mask=used, other=0.0).to(tl.float32)
    biases = tl.load(bias + column, mask=used, other=0.0).to(tl.float32)
    return (values - mean[:, None]) * inverse[:, None] * gains[None, :] + biases[None, :]


@triton.jit(do_not_specialize=["words"])
def _few_rows(
    x: tl.tensor,  # (words, size)
    x_gain: tl.tensor,  # (size,) if x_normed
    x_bias: tl.tensor,
    weight: tl.tensor,  # (outputs, size)
    bias: tl.tensor,  # (outputs,)
    residual: tl.tensor,  # (words, outputs) if added
    residual_gain: tl.tensor,  # (outputs,) if added
    residual_bias: tl.tensor,
    out: tl.tensor,  # (words, outputs)
    words: tl.tensor,
    size: tl.constexpr,
    outputs: tl.constexpr,
    padded: tl.constexpr,
    x_normed: tl.constexpr,
    added: tl.constexpr,
    gelu: tl.constexpr,
    epsilon: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    interpreted: tl.constexpr,
) -> None:
    row = tl.program_id(1) * rows + tl.arange(0, rows)
    output = tl.program_id(0) * columns + tl.arange(0, columns)
    present, wanted = row < words, output < outputs
    dtype: tl.constexpr = tl.float32 if interpreted else weight.dtype.element_ty
    if x_normed:
        mean, inverse = _spread(x, row, words, size, padded, epsilon)
    sums = tl.zeros((rows, columns), tl.float32)
    for begin in range(0, size, block):
        column = begin + tl.arange(0, block)
        used = column < size
        own = weight + output[:, None] * size + column[None, :]
        weights = tl.load(own, mask=wanted[:, None] & used[None, :], other=0.0).to(dtype)
        places = x + row[:, None] * size + column[None, :]
        values = tl.load(places, mask=present[:, None] & used[None, :], other=0.0)
        if x_normed:
            values = _normed(values.to(tl.float32), mean, inverse, x_gain, x_bias, column, size)
        sums = tl.dot(values.to(dtype), tl.trans(weights), sums, input_precision="ieee")
    sums += tl.load(bias + output, mask=wanted, other=0.0).to(tl.float32)[None, :]
    if gelu:
        sums = 0.5 * sums * (1 + tl.erf(sums * 0.7071067811865476))
    places = row[:, None] * outputs + output[None, :]
    inside = present[:, None] & wanted[None, :]
    if added:
        mean, inverse = _spread(residual, row, words, outputs, padded, epsilon)
        values = tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
        sums += _normed(values, mean, inverse, residual_gain, residual_bias, output, outputs)
    tl.store(out + places, sums, mask=inside)


def few_rows(
    rows: Rows, linear: nn.Linear, *, gelu: bool = False, residual: Rows | None = None
) -> Tensor:
    """(Q, X) to (Q, H) in the layer's type; with a residual, before its norm and in float32."""
    x, weight = rows.values, linear.weight
    words, size = x.shape
    outputs = len(weight)
    out = torch.empty(
        words, outputs, dtype=weight.dtype if residual is None else torch.float32, device=x.device
    )
    block_rows = min(32, max(16, triton.next_power_of_2(words)))
    norms = [given and given.norm for given in (rows, residual)]
    (x_gain, x_bias), (gain, bias) = (
        (weight, weight) if norm is None else (norm.weight, norm.bias) for norm in norms
    )
    epsilon = next((norm.eps for norm in norms if norm is not None), 0.0)
    widest = max(size if rows.norm is not None else 1, outputs if residual is not None else 1)
    grid = (triton.cdiv(outputs, _COLUMNS), triton.cdiv(words, block_rows))
    with torch.cuda.device(x.get_device()):
        _few_rows[grid](
            x, x_gain, x_bias, weight, linear.bias,
            out if residual is None else residual.values, gain, bias, out, words,
            size=size, outputs=outputs,
            padded=triton.next_power_of_2(widest),
            x_normed=rows.norm is not None, added=residual is not None, gelu=gelu,
            epsilon=epsilon, rows=block_rows, columns=_COLUMNS,
            block=min(_BLOCK, triton.next_power_of_2(size)), interpreted=not x.is_cuda,
            num_warps=_WARPS, num_stages=_STAGES,
        )  # fmt: skip
    return out
