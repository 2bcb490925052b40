"""TK's transformer for ranking on a GPU: the same words in, the same words out, sooner.

What the plain layers spend their time on is not arithmetic but memory. Here weights and what they
are multiplied with are in bfloat16; vectors get columns of zeros until their products suit the
matrix units; sums and norms take one pass, and attention neither writes its matrix nor looks at
padding. Takes the place of trained layers; the plain form is `nn.contextual.ContextualLayers`, and
`nn/cpu/doc_encoders.py` is the same for a CPU.

Needs Triton where it is called.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.nn.contextual import ContextualLayers, Layer, Norm, positions

_COLUMNS = 64
"""Vectors are as wide as a multiple of this."""


class ContextualOnGPU(nn.Module):
    """Computes in `dtype`, whatever the type of the words."""

    mix: Tensor

    def __init__(self, layers: ContextualLayers, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype
        self.layers = nn.ModuleList(_Layer(cast(Layer, layer), dtype) for layer in layers.layers)
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

    def __init__(self, layer: Layer, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.scale = layer.heads, layer.scale
        first, second = (cast(nn.Linear, layer.feed_forward[place]) for place in (0, 2))
        width, hidden = _fitting(first.in_features), _fitting(first.out_features)
        project, output = layer.query_key_value, layer.output
        self.first = _linear(first, width, hidden, dtype)
        self.second = _linear(second, hidden, width, dtype)
        self.query_key_value = _linear(project, width, project.out_features, dtype)
        self.output = _linear(output, output.in_features, width, dtype)
        self.feed_forward_norm = _SumNorm(layer.feed_forward_norm, dtype)
        self.attention_norm = _SumNorm(layer.attention_norm, dtype)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        from glassrank.nn.gpu.attention import attend

        hidden = self.first(x).relu_()  # (B, L, F)
        h = self.feed_forward_norm(self.second(hidden), x)  # (B, L, W)
        attended = attend(self.query_key_value(h), lengths, self.heads, self.scale)
        result: Tensor = self.attention_norm(self.output(attended), h)
        return result


class _SumNorm(nn.Module):
    """The norm of a sum of two."""

    gain: Tensor
    bias: Tensor

    def __init__(self, norm: Norm, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("gain", norm.gain.detach().to(dtype))
        self.register_buffer("bias", norm.bias.detach().to(dtype))

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        from glassrank.nn.gpu.norm import add_norm

        return add_norm(x, residual, self.gain, self.bias)


def _fitting(size: int) -> int:
    return -(-size // _COLUMNS) * _COLUMNS


def _linear(linear: nn.Linear, inputs: int, outputs: int, dtype: torch.dtype) -> nn.Linear:
    """The same map between vectors with columns of zeros at the end."""
    wide = nn.Linear(inputs, outputs, device=linear.weight.device, dtype=dtype)
    rows, columns = outputs - linear.out_features, inputs - linear.in_features
    wide.weight = _frozen(functional.pad(linear.weight, (0, columns, 0, rows)), dtype)
    wide.bias = _frozen(functional.pad(linear.bias, (0, rows)), dtype)
    return wide


def _frozen(tensor: Tensor, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(tensor.detach().to(dtype), requires_grad=False)
