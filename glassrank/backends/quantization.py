"""Quantization of vectors: bfloat16, as bits in uint16 since numpy has no such type, and int3.

int3 has four levels on either side of zero and a step for each vector: the one with the least
error, then enlarged so that a token still has a cosine of one with itself, for kernels that count
exact matches. Sixteen values are six bytes: two bits of each, then the third.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """float32 to bfloat16, rounded to the nearest, and to the even one of two; no NaN.

    >>> float(from_bfloat16(to_bfloat16(np.array([1.01], np.float32)))[0])
    1.0078125
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits >> np.uint32(16)) & np.uint32(1)
    rounded += bits
    rounded += np.uint32(0x7FFF)
    rounded >>= np.uint32(16)
    return rounded.astype(np.uint16)


def from_bfloat16(bits: NDArray[Any]) -> NDArray[np.float32]:
    """bfloat16 to float32."""
    wide = bits.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)


GROUP, GROUP_BYTES = 16, 6
_HALF = 4
_NORMAL_STEP = 0.586  # the best step for eight levels, in standard deviations
_ROUNDS = 3
_SMALLEST = 1e-300
_PLACES = np.arange(GROUP)


def quantize_int3(vectors: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """(..., E) to codes from 0 to 7, (..., E), and scales (...): a value is `code - 3.5` scales."""
    wide = vectors.astype(np.float64)  # whose squares neither overflow nor vanish
    squares = (wide * wide).sum(-1, keepdims=True)  # (..., 1)
    steps = _NORMAL_STEP * np.sqrt(squares / wide.shape[-1])
    for _ in range(_ROUNDS):
        levels = _levels(wide, steps)
        steps = (wide * levels).sum(-1, keepdims=True) / (levels * levels).sum(-1, keepdims=True)
    levels = _levels(wide, steps)
    # A vector of zeros has the scale 0, and so may one of the smallest numbers there are.
    scales = squares / np.maximum((wide * levels).sum(-1, keepdims=True), _SMALLEST)
    return (levels + (_HALF - 0.5)).astype(np.uint8), scales[..., 0].astype(np.float32)


def _levels(vectors: NDArray[np.float64], steps: NDArray[np.float64]) -> NDArray[np.float64]:
    whole: NDArray[np.float64] = np.floor(vectors / np.maximum(steps, _SMALLEST))
    return whole.clip(-_HALF, _HALF - 1) + 0.5


def pack_codes(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(T, S) codes to (T, S / 16 * 6) bytes."""
    words, count = len(codes), codes.shape[1] // GROUP
    groups = codes.reshape(words, count, GROUP)
    lower = ((groups & 3).astype(np.uint32) << (2 * _PLACES).astype(np.uint32)).sum(2)
    upper = ((groups >> 2).astype(np.uint32) << _PLACES.astype(np.uint32)).sum(2)
    parts = (
        lower.astype("<u4")[..., None].view(np.uint8),  # (T, G, 4)
        upper.astype("<u2")[..., None].view(np.uint8),  # (T, G, 2)
    )
    return np.concatenate(parts, 2).reshape(words, count * GROUP_BYTES)


def unpack_codes(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(..., S / 16 * 6) bytes to (..., S) codes."""
    *shape, size = rows.shape
    count = size // GROUP_BYTES
    groups = rows.reshape(*shape, count, GROUP_BYTES)
    lower = np.ascontiguousarray(groups[..., :4]).view("<u4")  # (..., G, 1)
    upper = np.ascontiguousarray(groups[..., 4:]).view("<u2")
    codes = (lower >> (2 * _PLACES) & 3) | (upper >> _PLACES & 1) << 2  # (..., G, 16)
    return codes.astype(np.uint8).reshape(*shape, count * GROUP)
