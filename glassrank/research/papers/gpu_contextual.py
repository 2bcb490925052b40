"""TK's transformer for ranking on a GPU: the same words in, the same words out, sooner.

What the plain layers spend their time on is not arithmetic but memory. Here weights and what they
are multiplied with are in bfloat16; vectors get columns of zeros until their products suit the
matrix units; sums and norms take one pass (`add_norm`, for BERT's layers too), and attention
neither writes its matrix nor looks at padding. Takes the place of trained layers; the plain forms
are `backends.transformer.ContextualLayers` and PyTorch's LayerNorm.

Needs Triton: nothing imports this file unless the words are on a GPU.
"""

import copy
from typing import cast

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.nn import functional

from glassrank.research.papers.contextual import ContextualLayer, ContextualLayers, positions
from glassrank.research.papers.gpu_attention import attend

_ROWS, _WARPS = 4, 2

_COLUMNS = 64
"""Vectors are as wide as a multiple of this."""


@triton.jit(do_not_specialize=["rows", "residual_rows", "residual_stride"])
def _add_norm(
    x: tl.tensor,  # (rows, width)
    residual: tl.tensor,  # (residual_rows, width), rows so far apart
    gain: tl.tensor,  # (size,)
    bias: tl.tensor,  # (size,)
    normed: tl.tensor,  # (rows, width)
    rows: tl.tensor,
    residual_rows: tl.tensor,
    residual_stride: tl.tensor,
    size: tl.constexpr,
    width: tl.constexpr,
    padded: tl.constexpr,
    block: tl.constexpr,
    epsilon: tl.constexpr,
    in_root: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    column = tl.arange(0, padded)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    used = (column < size)[None, :]
    places = row[:, None] * width + column[None, :]
    given = tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
    residual_places = (row % residual_rows)[:, None] * residual_stride + column[None, :]
    given += tl.load(residual + residual_places, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(given, 1) / size  # what lies beyond `size` is zero
    centred = tl.where(used, given - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, 1) / size
    deviation = tl.sqrt(variance + epsilon) if in_root else tl.sqrt(variance) + epsilon
    gains = tl.load(gain + column, mask=column < size, other=0.0).to(tl.float32)
    biases = tl.load(bias + column, mask=column < size, other=0.0).to(tl.float32)
    result = gains[None, :] * (centred / deviation[:, None]) + biases[None, :]
    tl.store(normed + places, result, mask=inside)


def add_norm(
    x: Tensor,
    residual: Tensor,
    gain: Tensor,
    bias: Tensor,
    epsilon: float = 1e-6,
    in_root: bool = False,
) -> Tensor:
    """The norm of x + residual (…, W), over as many columns as there are gains: the columns behind
    them hold zeros and keep them. A residual of fewer rows is used again and again, and its rows
    may lie apart. `in_root` says that `epsilon` is added to the variance, as in BERT, and not to
    its root, as in TK."""
    normed = torch.empty_like(x)
    width = x.shape[-1]
    rows = x.numel() // width
    if rows:
        with torch.cuda.device(x.get_device()):
            _add_norm[(triton.cdiv(rows, _ROWS),)](
                x,
                residual,
                gain,
                bias,
                normed,
                rows,
                residual.numel() // width,
                residual.stride(-2),
                size=len(gain),
                width=width,
                padded=triton.next_power_of_2(width),
                block=_ROWS,
                epsilon=epsilon,
                in_root=in_root,
                num_warps=_WARPS,
            )
    return normed


class ContextualOnGPU(nn.Module):
    """Computes in `dtype`, whatever the type of the words."""

    mix: Tensor

    def __init__(self, layers: ContextualLayers, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype
        self.layers = nn.ModuleList(
            _Layer(cast(ContextualLayer, layer), dtype) for layer in layers.layers
        )
        self.register_buffer("mix", layers.mix.detach().clone())

    @torch.no_grad()
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(B, L, E) and a mask (B, L) to (B, L, E)."""
        docs, length, size = vectors.shape
        context = vectors.new_zeros(docs, length, _fitting(size), dtype=self.dtype)  # (B, L, W)
        torch.add(vectors, positions(vectors), out=context[..., :size])
        lengths = mask.sum(1, dtype=torch.int32)  # (B,)
        for layer in self.layers:
            context = layer(context, lengths)
        mixed = torch.lerp(
            context[..., :size].to(vectors.dtype), vectors, self.mix.to(vectors.dtype)
        )
        return mixed.mul_(mask[..., None])  # (B, L, E)


class _Layer(nn.Module):
    """h = norm(FF(x) + x); out = norm(attention(h) + h), on vectors of fitting width."""

    def __init__(self, layer: ContextualLayer, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.scale = layer.heads, layer.scale
        first, second = (cast(nn.Linear, layer.feed_forward[place]) for place in (0, 2))
        width, hidden = _fitting(first.in_features), _fitting(first.out_features)
        project, output = layer.query_key_value, layer.output
        self.first = _linear(first, width, hidden, dtype)
        self.second = _linear(second, hidden, width, dtype)
        self.query_key_value = _linear(project, width, project.out_features, dtype)
        self.output = _linear(output, output.in_features, width, dtype)
        norms = copy.deepcopy((layer.feed_forward_norm, layer.attention_norm))
        self.feed_forward_norm, self.attention_norm = (norm.to(dtype) for norm in norms)
        self.requires_grad_(False)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        hidden = self.first(x).relu_()  # (B, L, F)
        norm = self.feed_forward_norm
        h = add_norm(self.second(hidden), x, norm.gain, norm.bias)  # (B, L, W)
        attended = attend(self.query_key_value(h), lengths, self.heads, self.scale)
        norm = self.attention_norm
        return add_norm(self.output(attended), h, norm.gain, norm.bias)


def _fitting(size: int) -> int:
    return -(-size // _COLUMNS) * _COLUMNS


def _linear(linear: nn.Linear, inputs: int, outputs: int, dtype: torch.dtype) -> nn.Linear:
    """The same map between vectors with columns of zeros at the end."""
    wide = nn.Linear(inputs, outputs, device=linear.weight.device, dtype=dtype)
    rows, columns = outputs - linear.out_features, inputs - linear.in_features
    with torch.no_grad():
        wide.weight.copy_(functional.pad(linear.weight, (0, columns, 0, rows)))
        wide.bias.copy_(functional.pad(linear.bias, (0, rows)))
    return wide
