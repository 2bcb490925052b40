"""TK's transformer for ranking on a CPU: the same words in, the same words out, sooner.

Words of all documents stand in one matrix, one after another, so that nothing is computed for
padding; only attention looks at documents. Weights are in bfloat16 where the processor multiplies
it, and lie as its matrix units read them. Takes the place of trained layers; the plain form is
`nn.contextual.ContextualLayers`, and `nn/gpu/contextual.py` is the same for a GPU.
"""

from functools import lru_cache
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from glassrank.nn.contextual import ContextualLayers, Layer, Norm, positions

_EPSILON = 1e-12
"""The plain norm adds 1e-6 to the deviation; PyTorch's, which is faster, adds this to its square.
The two differ only where all columns of a vector are nearly the same."""
_ROWS = 512
"""For so many, weights are laid out best; any other number gives the same results."""


class ContextualOnCPU(nn.Module):
    """Computes in `dtype`, whatever the type of the words."""

    mix: Tensor

    def __init__(self, layers: ContextualLayers, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype
        self.layers = nn.ModuleList(_Layer(cast(Layer, layer), dtype) for layer in layers.layers)
        self.register_buffer("mix", layers.mix.detach().clone())

    @torch.no_grad()
    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(B, L, E); the mask (B, L) is 1 for the first words of each."""
        lengths = mask.sum(1, dtype=torch.int64).numpy()  # (B,)
        every, total = vectors.flatten(0, 1), int(lengths.sum())  # (B * L, E)
        if total == 0:
            return torch.zeros_like(vectors)
        whole = total == len(every)
        where = torch.empty(0) if whole else mask.flatten().nonzero().squeeze(1)  # (T,)
        words = every if whole else every.index_select(0, where)  # (T, E)
        made = self._encode(words, lengths, positions(vectors))  # (T, E)
        if whole:
            return made.view(vectors.shape)
        return torch.zeros_like(every).index_copy_(0, where, made).view(vectors.shape)

    def _encode(self, words: Tensor, lengths: NDArray[np.int64], waves: Tensor) -> Tensor:
        """(T, E) to (T, E)."""
        places = torch.cat([waves[:length] for length in lengths.tolist()])  # (T, E)
        context = (words + places).to(self.dtype)
        spare = _rounded_up(len(words)) - len(words)
        if spare:  # one more document, of zeros
            context = functional.pad(context, (0, 0, 0, spare))
            lengths = np.append(lengths, spare)
        for layer in self.layers:
            context = layer(context, lengths)
        context = context[: len(words)].to(words.dtype)
        return torch.lerp(context, words, self.mix.to(words.dtype))


def _rounded_up(rows: int) -> int:
    """To one of eight numbers between a power of two and the next: oneDNN compiles, and keeps, a
    kernel for each number of rows that it meets.

    >>> [_rounded_up(rows) for rows in (1, 16, 100, 1000, 1025)]
    [16, 16, 112, 1024, 1152]
    """
    step = max(16, 1 << max(0, rows.bit_length() - 4))
    return -(-rows // step) * step


class _Layer(nn.Module):
    """h = norm(FF(x) + x); out = norm(attention(h) + h), on words of several documents."""

    def __init__(self, layer: Layer, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, self.scale = layer.heads, layer.scale
        first, second = (cast(nn.Linear, layer.feed_forward[place]) for place in (0, 2))
        self.first, self.second = Packed(first, dtype, "relu"), Packed(second, dtype)
        self.query_key_value = Packed(layer.query_key_value, dtype)
        self.output = Packed(layer.output, dtype)
        self.feed_forward_norm = _SumNorm(layer.feed_forward_norm, dtype)
        self.attention_norm = _SumNorm(layer.attention_norm, dtype)

    def forward(self, x: Tensor, lengths: NDArray[np.int64]) -> Tensor:
        h = self.feed_forward_norm(self.second(self.first(x)), x)  # (T, E)
        attended = self._attend(self.query_key_value(h), lengths)  # (T, H * A)
        result: Tensor = self.attention_norm(self.output(attended), h)
        return result

    def _attend(self, projected: Tensor, lengths: NDArray[np.int64]) -> Tensor:
        """(T, 3 * H * A) to (T, H * A)."""
        if _has_tiles(projected.dtype, projected.shape[1] // (3 * self.heads)):
            from glassrank.nn.cpu.attention import attend_within

            return attend_within(projected, lengths, self.heads, self.scale)
        parts = []
        start = 0
        for length, same in groupby(lengths.tolist()):
            docs = len(list(same))
            part = projected[start : start + docs * length]
            if not length:
                continue
            split = part.view(docs, length, 3, self.heads, -1)
            query, key, value = split.permute(2, 0, 3, 1, 4)  # each (docs, H, length, A)
            attended = functional.scaled_dot_product_attention(query, key, value, scale=self.scale)
            parts.append(attended.transpose(1, 2).reshape(docs * length, -1))
            start += docs * length
        return torch.cat(parts)


class _SumNorm(nn.Module):
    """The norm of a sum of two, the first of which is written over."""

    gain: Tensor
    bias: Tensor

    def __init__(self, norm: Norm, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("gain", norm.gain.detach().to(dtype))
        self.register_buffer("bias", norm.bias.detach().to(dtype))

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        size = self.gain.shape
        return functional.layer_norm(x.add_(residual), size, self.gain, self.bias, _EPSILON)


class Packed(nn.Module):
    """A linear layer and what follows it, `none` or `relu`. Its weights are brought into the order
    in which oneDNN reads them once, and not at every call."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, activation: str = "none") -> None:
        super().__init__()
        self.weight = linear.weight.detach().to(dtype)
        self.bias = linear.bias.detach().to(dtype)
        self.activation = activation
        self.packed = _in_order(self.weight) if dtype == torch.bfloat16 and _packs() else None

    def forward(self, x: Tensor) -> Tensor:
        """(T, inputs) to (T, outputs)."""
        if self.packed is None:
            made = functional.linear(x, self.weight, self.bias)
            return made.relu_() if self.activation == "relu" else made
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.bias, self.activation, [], ""
        )
        return result


def _in_order(weight: Tensor) -> Any:
    return torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)


@lru_cache
def _has_tiles(dtype: torch.dtype, channels: int) -> bool:
    try:
        from glassrank.nn.cpu import attention
    except ImportError:  # no numba, as on a machine that only trains
        return False
    return attention.usable(dtype, channels)


@lru_cache(maxsize=1)
def _packs() -> bool:
    """Whether this PyTorch has the two calls, which its compiler uses and does not promise."""
    x, weight, bias = (torch.ones(shape, dtype=torch.bfloat16) for shape in ((2, 3), (4, 3), (4,)))
    try:
        packed = torch.ops.mkldnn._linear_pointwise(x, _in_order(weight), bias, "relu", [], "")
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(packed, functional.linear(x, weight, bias))
