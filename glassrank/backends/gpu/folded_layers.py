"""BERT's layers for the few rows of one query on a GPU, in four Triton kernels each; the plain form
is `backends.transformer.Layer`.

One query is so little work that a GPU spends its time between kernels. So a kernel takes rows
before their norm, which is folded into the weights, attention is part of the kernel that follows
it, and a kernel loads its weights before the one in front of it has ended.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

_COLUMNS, _BLOCK, _WARPS = 64, 128, 4
"""Outputs of one program: few, so that all of the GPU reads the weights; and inputs at a time."""
_STEPS = 6
"""Blocks of inputs that a program takes; where there are more, several programs add their sums."""
_HEAD_COLUMNS, _HEAD_WARPS = 32, 4  # the same for attention, of which a program takes one head


class Folded:
    """A linear layer, with the norm in front of it if there is one.

    norm(x) W' + b is (x - mean) / deviation * (gain * W)' + (b + bias W'), and the mean can be
    taken off afterwards, by the sums of gain * W.
    """

    def __init__(self, linear: nn.Linear, norm: nn.LayerNorm | None = None) -> None:
        weight, bias = linear.weight.detach(), linear.bias.detach().float()
        self.weight, self.bias, self.sums, self.epsilon = weight.contiguous(), bias, bias, 0.0
        self.normed = norm is not None
        if norm is not None:
            whole = weight.float()
            self.weight = (whole * norm.weight.detach().float()).to(weight.dtype)  # (N, K)
            self.bias = bias + whole @ norm.bias.detach().float()  # (N,)
            self.sums = self.weight.float().sum(1)  # (N,)
            self.epsilon = norm.eps
        # How many programs have added their sums to a tile: 0 again when all have.
        self.arrived = torch.zeros(len(weight), dtype=torch.int32, device=weight.device)


class Rows(NamedTuple):
    """Rows (Q, H) before their norm, in float32, with (Q, 2) mean and 1 / deviation of each."""

    values: Tensor
    spread: Tensor
    norm: nn.LayerNorm


@triton.jit
def _of_outputs(values: tl.tensor, output: tl.tensor, outputs: tl.constexpr) -> tl.tensor:
    return tl.load(values + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _of_norm(
    rows: tl.tensor, spread: tl.tensor, row: tl.tensor, output: tl.tensor, words: tl.tensor,
    outputs: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Some columns of rows, without mean and deviation."""
    inside = (row < words)[:, None] & (output < outputs)[None, :]
    values = tl.load(rows + row[:, None] * outputs + output[None, :], mask=inside, other=0.0)
    mean = tl.load(spread + 2 * row, mask=row < words, other=0.0)
    inverse = tl.load(spread + 2 * row + 1, mask=row < words, other=0.0)
    return (values - mean[:, None]) * inverse[:, None]


@triton.jit
def _last_to_arrive(
    total: tl.tensor, row: tl.tensor, output: tl.tensor, words: tl.tensor, partial: tl.tensor,
    arrived: tl.tensor, tile: tl.tensor, part: tl.tensor, outputs: tl.constexpr,
    parts: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Leaves this program's sums where the others find them; says whether all are there now."""
    inside = (row < words)[:, None] & (output < outputs)[None, :]
    places = (part * words + row)[:, None] * outputs + output[None, :]
    tl.store(partial + places, total, mask=inside)
    tl.debug_barrier()
    return tl.atomic_add(arrived + tile, 1, sem="acq_rel") == parts - 1


@triton.jit
def _sum_of_parts(
    row: tl.tensor, output: tl.tensor, words: tl.tensor, partial: tl.tensor, arrived: tl.tensor,
    tile: tl.tensor, outputs: tl.constexpr, parts: tl.constexpr, rows: tl.constexpr,
    columns: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Always in the same order, whichever program came last."""
    inside = (row < words)[:, None] & (output < outputs)[None, :]
    total = tl.zeros((rows, columns), tl.float32)
    for part in tl.static_range(parts):
        places = (part * words + row)[:, None] * outputs + output[None, :]
        total += tl.load(partial + places, mask=inside, other=0.0, cache_modifier=".cg")
    tl.store(arrived + tile, 0)
    return total


@triton.jit(do_not_specialize=["words"])
def _linear(
    x: tl.tensor,  # (words, size)
    weight: tl.tensor,  # (outputs, size)
    bias: tl.tensor,  # (outputs,)
    sums: tl.tensor,  # (outputs,) if normed
    residual: tl.tensor,  # (words, outputs) if added
    spread: tl.tensor,  # (words, 2): written if normed, read if added
    gain: tl.tensor,  # (outputs,) if added
    shift: tl.tensor,  # (outputs,) if added
    out: tl.tensor,  # (words, outputs)
    partial: tl.tensor,  # (parts, words, outputs) if there are several
    arrived: tl.tensor,  # (tiles,)
    words: tl.tensor,
    size: tl.constexpr,
    outputs: tl.constexpr,
    normed: tl.constexpr,
    added: tl.constexpr,
    gelu: tl.constexpr,
    epsilon: tl.constexpr,
    parts: tl.constexpr,
    steps: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
    interpreted: tl.constexpr,
) -> None:
    if early:
        gdc_launch_dependents()
    part, row = tl.program_id(1), tl.arange(0, rows)
    output = tl.program_id(0) * columns + tl.arange(0, columns)
    wanted = (output < outputs)[:, None]
    # Triton's interpreter has no products of bfloat16.
    dtype: tl.constexpr = tl.float32 if interpreted else weight.dtype.element_ty
    tiles: tl.tuple = ()
    for step in tl.static_range(steps):
        column = (part * steps + step) * block + tl.arange(0, block)
        of_output = weight + output[:, None] * size + column[None, :]
        tiles += (tl.load(of_output, mask=wanted & (column < size)[None, :], other=0.0),)
    base = _of_outputs(bias, output, outputs)
    own_sums = _of_outputs(sums, output, outputs)
    gains, shifts = _of_outputs(gain, output, outputs), _of_outputs(shift, output, outputs)
    if early:
        gdc_wait()  # all that is known beforehand is on its way; the rest the step before has made
    if added:
        base += _of_norm(residual, spread, row, output, words, outputs) * gains + shifts
    total = tl.zeros((rows, columns), tl.float32)
    first, second = tl.zeros((rows,), tl.float32), tl.zeros((rows,), tl.float32)
    for step in tl.static_range(steps):
        column = (part * steps + step) * block + tl.arange(0, block)
        inside = (row < words)[:, None] & (column < size)[None, :]
        values = tl.load(x + row[:, None] * size + column[None, :], mask=inside, other=0.0)
        if normed:
            first += tl.sum(values, 1)
            second += tl.sum(values * values, 1)
        right = tl.trans(tiles[step].to(dtype))
        total = tl.dot(values.to(dtype), right, total, input_precision="ieee")
    if normed:
        mean = first / size
        inverse = tl.rsqrt(second / size - mean * mean + epsilon)
        total = (total - mean[:, None] * own_sums) * inverse[:, None]
        if tl.program_id(0) == 0:
            tl.store(spread + 2 * row, mean, mask=row < words)
            tl.store(spread + 2 * row + 1, inverse, mask=row < words)
    inside = (row < words)[:, None] & (output < outputs)[None, :]
    places = out + row[:, None] * outputs + output[None, :]
    if parts == 1:
        total += base
        if gelu:
            total = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))
        tl.store(places, total, mask=inside)
    else:
        tile = tl.program_id(0)
        if _last_to_arrive(total, row, output, words, partial, arrived, tile, part, outputs, parts):
            total = _sum_of_parts(row, output, words, partial, arrived, tile, outputs, parts, rows,
                                  columns)  # fmt: skip
            tl.store(places, total + base, mask=inside)


@triton.jit(do_not_specialize=["words"])
def _attended(
    three: tl.tensor,  # (words, 3, heads, size)
    length: tl.tensor,  # (1,)
    weight: tl.tensor,  # (outputs, heads, size)
    bias: tl.tensor,  # (outputs,)
    residual: tl.tensor,  # (words, outputs)
    spread: tl.tensor,  # (words, 2)
    gain: tl.tensor,  # (outputs,)
    shift: tl.tensor,  # (outputs,)
    out: tl.tensor,  # (words, outputs)
    partial: tl.tensor,  # (heads, words, outputs)
    arrived: tl.tensor,  # (tiles,)
    words: tl.tensor,
    outputs: tl.constexpr,
    scale: tl.constexpr,
    heads: tl.constexpr,
    size: tl.constexpr,
    padded: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    early: tl.constexpr,
    interpreted: tl.constexpr,
) -> None:
    if early:
        gdc_launch_dependents()
    width: tl.constexpr = heads * size  # may be less than rows have: some heads were left out
    head, row, channel = tl.program_id(1), tl.arange(0, rows), tl.arange(0, padded)
    output = tl.program_id(0) * columns + tl.arange(0, columns)
    used = channel < size
    dtype: tl.constexpr = tl.float32 if interpreted else weight.dtype.element_ty
    weights = weight + output[:, None] * width + head * size + channel[None, :]
    tile = tl.load(weights, mask=(output < outputs)[:, None] & used[None, :], other=0.0).to(dtype)
    base = _of_outputs(bias, output, outputs)
    gains, shifts = _of_outputs(gain, output, outputs), _of_outputs(shift, output, outputs)
    if early:
        gdc_wait()
    count = tl.load(length)
    places = three + row[:, None] * (3 * width) + head * size + channel[None, :]
    inside = (row < words)[:, None] & used[None, :]
    query = tl.load(places, mask=inside, other=0.0).to(dtype)
    key = tl.load(places + width, mask=inside, other=0.0).to(dtype)
    value = tl.load(places + 2 * width, mask=inside, other=0.0).to(dtype)
    base += _of_norm(residual, spread, row, output, words, outputs) * gains + shifts
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale  # (rows, rows)
    scores = tl.where((row < count)[None, :], scores, -float("inf"))
    shares = tl.exp2(scores - tl.max(scores, 1)[:, None])
    shares = shares / tl.sum(shares, 1)[:, None]
    attended_to = tl.dot(shares.to(dtype), value, input_precision="ieee")  # (rows, padded)
    total = tl.dot(attended_to.to(dtype), tl.trans(tile), input_precision="ieee")  # (rows, columns)
    number = tl.program_id(0)
    if _last_to_arrive(total, row, output, words, partial, arrived, number, head, outputs, heads):
        total = _sum_of_parts(row, output, words, partial, arrived, number, outputs, heads, rows,
                              columns)  # fmt: skip
        wanted = (row < words)[:, None] & (output < outputs)[None, :]
        tl.store(out + row[:, None] * outputs + output[None, :], total + base, mask=wanted)


def linear(
    x: Tensor, folded: Folded, *, gelu: bool = False, residual: Rows | None = None
) -> tuple[Tensor, Tensor]:
    """(Q, K) to (Q, N): in the layer's type, or with a residual before its norm in float32; and
    what the norm of x took off and divided by, if it has one."""
    (words, size), outputs = x.shape, len(folded.weight)
    block = min(_BLOCK, max(16, triton.next_power_of_2(size)))
    blocks = triton.cdiv(size, block)
    steps = blocks if folded.normed else min(_STEPS, blocks)  # a norm needs the whole row
    parts, tiles = triton.cdiv(blocks, steps), triton.cdiv(outputs, _COLUMNS)
    if gelu and parts > 1:
        raise ValueError("the activation of a sum of parts is not needed by BERT, and not made")
    dtype = folded.weight.dtype if residual is None else torch.float32
    out = torch.empty(words, outputs, dtype=dtype, device=x.device)
    spread = x.new_empty(words, 2, dtype=torch.float32) if residual is None else residual.spread
    partial = x.new_empty(parts if parts > 1 else 0, words, outputs, dtype=torch.float32)
    norm = None if residual is None else residual.norm
    with torch.cuda.device(x.get_device()):
        _linear[(tiles, parts)](
            x, folded.weight, folded.bias, folded.sums,
            out if residual is None else residual.values, spread,
            folded.bias if norm is None else norm.weight,
            folded.bias if norm is None else norm.bias,
            out, partial, folded.arrived, words,
            size=size, outputs=outputs, normed=folded.normed, added=residual is not None,
            gelu=gelu, epsilon=folded.epsilon, parts=parts, steps=steps, rows=_padded(words),
            columns=_COLUMNS, block=block, interpreted=not x.is_cuda, num_warps=_WARPS,
            **_launched_early(x),
        )  # fmt: skip
    return out, spread


def attended(three: Tensor, length: Tensor, folded: Folded, heads: int, residual: Rows) -> Tensor:
    """Attention of rows that are projected already, (Q, 3 * heads * A), of which the first `length`
    (1,) are meant, its output layer and the residual: (Q, H) before the norm."""
    words, (outputs, width) = len(three), folded.weight.shape
    out, size = torch.empty_like(residual.values), width // heads
    columns = min(_HEAD_COLUMNS, max(16, triton.next_power_of_2(outputs)))
    with torch.cuda.device(three.get_device()):
        _attended[(triton.cdiv(outputs, columns), heads)](
            three, length, folded.weight, folded.bias, residual.values, residual.spread,
            residual.norm.weight, residual.norm.bias, out,
            out.new_empty(heads, words, outputs), folded.arrived, words,
            outputs=outputs, scale=1.4426950408889634 / size**0.5, heads=heads, size=size,
            padded=max(16, triton.next_power_of_2(size)), rows=_padded(words), columns=columns,
            interpreted=not three.is_cuda, num_warps=_HEAD_WARPS, **_launched_early(three),
        )  # fmt: skip
    return out


def _padded(words: int) -> int:
    return int(max(16, triton.next_power_of_2(words)))


def _launched_early(x: Tensor) -> dict[str, bool]:
    """Whether a program may begin before the one in front of it has ended."""
    early = x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0)
    return {"early": True, "launch_pdl": True} if early else {"early": False}
