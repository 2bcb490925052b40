"""TK's transformer for ranking, not for training: the same words in, the same words out, sooner.

What the plain layers spend their time on is not arithmetic but memory. Here weights and what they
are multiplied with are in bfloat16. On a GPU, vectors get columns of zeros until their products
suit its matrix units, sums and norms take one pass, and attention neither writes its matrix nor
looks at padding. Takes the place of trained layers: `model.contextual = FastContextual(…)`.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.nn.contextual import ContextualLayers, Layer, Norm, positions

_COLUMNS = 64
"""On a GPU, vectors are as wide as a multiple of this."""
_NEVER = -1e30
"""Added to the scores of padding; finite in bfloat16."""
_EPSILON = 1e-12
"""The plain norm adds 1e-6 to the deviation; PyTorch's, which is faster, adds this to its square.
The two differ only where all columns of a vector are nearly the same."""


class FastContextual(nn.Module):
    """Computes in `dtype`, whatever the type of the words. `fused` says whether the Triton kernels
    run; they do where the layers are on a GPU, unless told otherwise."""

    mix: Tensor

    def __init__(
        self,
        layers: ContextualLayers,
        dtype: torch.dtype = torch.bfloat16,
        fused: bool | None = None,
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.fused = layers.mix.is_cuda if fused is None else fused
        self.layers = nn.ModuleList(
            FastLayer(cast(Layer, layer), dtype, self.fused) for layer in layers.layers
        )
        self.register_buffer("mix", layers.mix.detach().clone())
        self._positions: dict[tuple[int, torch.dtype], Tensor] = {}

    @torch.no_grad()
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        docs, length, size = vectors.shape
        width = _fitting(size, self.fused)
        context = vectors.new_zeros(docs, length, width, dtype=self.dtype)  # (B, L, W)
        torch.add(vectors, self._waves(vectors), out=context[..., :size])
        padding = self._padding(mask)
        for layer in self.layers:
            context = layer(context, padding)
        mixed = torch.lerp(
            context[..., :size].to(vectors.dtype), vectors, self.mix.to(vectors.dtype)
        )
        return mixed.mul_(mask[..., None])  # (B, L, E)

    def _waves(self, vectors: Tensor) -> Tensor:
        """Positions (L, E), kept from one call to the next."""
        length, size = vectors.shape[1:]
        key = (length, vectors.dtype)
        if key not in self._positions:
            self._positions[key] = positions(length, size, vectors.device).to(vectors.dtype)
        return self._positions[key]

    def _padding(self, mask: Tensor) -> Tensor | None:
        """How attention is told of padding: the documents' lengths (B,), or what is added to its
        scores (B, 1, 1, L), if anything."""
        if self.fused:
            return mask.sum(1, dtype=torch.int32)
        if bool(mask.all()):
            return None
        return ((1 - mask) * _NEVER)[:, None, None, :].to(self.dtype)


class FastLayer(nn.Module):
    """h = norm(FF(x) + x); out = norm(attention(h) + h), on vectors of fitting width."""

    def __init__(self, layer: Layer, dtype: torch.dtype, fused: bool) -> None:
        super().__init__()
        self.heads, self.scale, self.fused = layer.heads, layer.scale, fused
        first, second = (
            cast(nn.Linear, layer.feed_forward[0]),
            cast(nn.Linear, layer.feed_forward[2]),
        )
        width, hidden = _fitting(first.in_features, fused), _fitting(first.out_features, fused)
        project, output = layer.query_key_value, layer.output
        self.first = _linear(first, width, hidden, dtype)
        self.second = _linear(second, hidden, width, dtype)
        self.query_key_value = _linear(project, width, project.out_features, dtype)
        self.output = _linear(output, output.in_features, width, dtype)
        self.feed_forward_norm = FastNorm(layer.feed_forward_norm, dtype, fused)
        self.attention_norm = FastNorm(layer.attention_norm, dtype, fused)

    def forward(self, x: Tensor, padding: Tensor | None) -> Tensor:
        hidden = self.first(x).relu_()  # (B, L, F)
        h = self.feed_forward_norm(self.second(hidden), x)  # (B, L, W)
        attended = self._attend(self.query_key_value(h), padding)  # (B, L, H * A)
        result: Tensor = self.attention_norm(self.output(attended), h)
        return result

    def _attend(self, projected: Tensor, padding: Tensor | None) -> Tensor:
        if self.fused and padding is not None:
            from glassrank.nn.attention_triton import attend

            return attend(projected, padding, self.heads, self.scale)
        split = torch.unflatten(projected, -1, (3, self.heads, -1))  # (B, L, 3, H, A)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (B, H, L, A)
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=padding, scale=self.scale
        )  # (B, H, L, A)
        return attended.transpose(1, 2).flatten(2)


class FastNorm(nn.Module):
    """The norm of a sum of two."""

    gain: Tensor
    bias: Tensor

    def __init__(self, norm: Norm, dtype: torch.dtype, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.register_buffer("gain", norm.gain.detach().to(dtype))
        self.register_buffer("bias", norm.bias.detach().to(dtype))

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        if self.fused:
            from glassrank.nn.norm_triton import add_norm

            return add_norm(x, residual, self.gain, self.bias)
        size = self.gain.shape
        return functional.layer_norm(x.add_(residual), size, self.gain, self.bias, _EPSILON)


def _fitting(size: int, fused: bool) -> int:
    return -(-size // _COLUMNS) * _COLUMNS if fused else size


def _linear(linear: nn.Linear, inputs: int, outputs: int, dtype: torch.dtype) -> nn.Linear:
    """The same map between vectors with columns of zeros at the end."""
    wide = nn.Linear(inputs, outputs, device=linear.weight.device, dtype=dtype)
    rows, columns = outputs - linear.out_features, inputs - linear.in_features
    wide.weight = _frozen(functional.pad(linear.weight, (0, columns, 0, rows)), dtype)
    wide.bias = _frozen(functional.pad(linear.bias, (0, rows)), dtype)
    return wide


def _frozen(tensor: Tensor, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(tensor.detach().to(dtype), requires_grad=False)
