"""The sum of a layer's input and output with its norm, in one pass on a GPU: the plain forms are
`nn.contextual.Norm` and PyTorch's LayerNorm.

Needs Triton: nothing imports this file unless the rows are on a GPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _WARPS = 4, 2


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
