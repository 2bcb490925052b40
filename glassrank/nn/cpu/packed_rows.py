"""What transformers of documents share on a CPU: rows of several texts stand in one matrix, one
after another, so that nothing is computed for padding; only attention looks at texts."""

from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

_ROWS = 512
"""For so many, weights are laid out best; any other number gives the same results."""


def rounded_up(rows: int) -> int:
    """To one of eight numbers between a power of two and the next: oneDNN compiles, and keeps, a
    kernel for each number of rows that it meets.

    >>> [rounded_up(rows) for rows in (1, 16, 100, 1000, 1025)]
    [16, 16, 112, 1024, 1152]
    """
    step = max(16, 1 << max(0, rows.bit_length() - 4))
    return -(-rows // step) * step


def attend_in_rows(
    projected: Tensor, lengths: NDArray[np.int64], heads: int, scale: float
) -> Tensor:
    """What rows of texts with so many rows each attend to within their text: (T, 3 * H * A) to
    (T, H * A)."""
    if _has_tiles(projected.dtype, projected.shape[1] // (3 * heads)):
        from glassrank.nn.cpu.attention import attend_within

        return attend_within(projected, lengths, heads, scale)
    parts = []
    start = 0
    for length, same in groupby(lengths.tolist()):
        docs = len(list(same))
        part = projected[start : start + docs * length]
        if not length:
            continue
        split = part.view(docs, length, 3, heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (docs, H, length, A)
        attended = functional.scaled_dot_product_attention(query, key, value, scale=scale)
        parts.append(attended.transpose(1, 2).reshape(docs * length, -1))
        start += docs * length
    return torch.cat(parts)


class SumNorm(nn.Module):
    """The norm of a sum of two, the first of which is written over."""

    gain: Tensor
    bias: Tensor

    def __init__(self, gain: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.register_buffer("gain", gain.detach().to(dtype))
        self.register_buffer("bias", bias.detach().to(dtype))

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """(T, E) of two (T, E)."""
        size = self.gain.shape
        return functional.layer_norm(x.add_(residual), size, self.gain, self.bias, self.epsilon)


_EXACT = {"gelu": "none"}
"""Of an activation that has an approximate form too."""


class Packed(nn.Module):
    """A linear layer and what follows it, `none`, `relu` or `gelu`. Its weights are brought into
    the order in which oneDNN reads them once, and not at every call."""

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
            if self.activation == "gelu":
                return functional.gelu(made)
            return made.relu_() if self.activation == "relu" else made
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.bias, self.activation, [], _EXACT.get(self.activation, "")
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
