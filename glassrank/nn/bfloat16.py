"""Bfloat16 as its bits in uint16: numpy has no such type."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def bits_of(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounded to the nearest value, and to the even one where two are as near; values are numbers.

    >>> float(values_of(bits_of(np.array([1.01], np.float32)))[0])
    1.0078125
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits >> np.uint32(16)) & np.uint32(1)
    rounded += bits
    rounded += np.uint32(0x7FFF)
    rounded >>= np.uint32(16)
    return rounded.astype(np.uint16)


def values_of(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The numbers that they stand for."""
    wide = bits.astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)
