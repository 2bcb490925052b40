"""A query in the order in which compiled products read it.

There are three kinds. Tiles of bfloat16 or int8 hold a query word as a sum of several parts, so
that it is about as exact as float32 although it is multiplied in fewer bits. Lanes are plain
float32. In all of them query words stand in groups of sixteen, with zeros for those that are
missing.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Kind = Literal["bf16", "int8", "lanes"]

GROUP = 16
"""Query words side by side."""

AT_ONCE: dict[Kind, int] = {"bf16": 32, "int8": 64, "lanes": 1}
"""Values of each word that are multiplied at once: no fewer are read."""

INT8_PARTS = 3
INT8_PLACE = 128
"""Parts of int8 stand for so much of one another, like digits."""

_MANY = 128


class PackedQuery(NamedTuple):
    values: NDArray[Any]
    """uint16 (bfloat16's bits) or int8 as tiles, or float32 as lanes."""
    scales: NDArray[np.float32]  # (groups * 16,) what int8 is to be multiplied with
    weights: NDArray[np.float32]  # (groups * 16,) of the words in the score
    groups: int
    size: int  # values of each word
    parts: int


def pack_query(query: NDArray[np.float32], weights: NDArray[np.float32], kind: Kind) -> PackedQuery:
    words, size = query.shape
    groups = -(-words // GROUP)
    vectors = torch.zeros(groups * GROUP, -(-size // AT_ONCE[kind]) * AT_ONCE[kind])
    vectors.numpy()[:words, :size] = query
    parts, scales = vectors[None], torch.ones(groups * GROUP)
    if kind == "lanes":
        values = vectors.view(groups, GROUP, size).transpose(1, 2).contiguous().numpy()
    elif kind == "bf16":
        parts = _bf16_parts(vectors, 2 if size >= _MANY else 3)
        values = _tiles(parts).view(np.uint16)
    else:
        parts, scales = _int8_parts(vectors)
        values = _tiles(parts).view(np.int8)
    padded = np.zeros(groups * GROUP, np.float32)
    padded[:words] = weights
    return PackedQuery(values.reshape(-1), scales.numpy(), padded, groups, size, len(parts))


def _bf16_parts(vectors: Tensor, count: int) -> Tensor:
    """Bfloat16 (P, Q, E) that add up to the vectors. Three have all bits of float32. Two miss up to
    2^-18 of each value, in either direction: summed over many values this is no more than float32
    loses in the summing."""
    parts = []
    for _ in range(count):
        parts.append(vectors.bfloat16())
        vectors = vectors - parts[-1]
    return torch.stack(parts)


def _int8_parts(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Int8 (P, Q, E), the part that stands for most first, and the scale of each word (Q,)."""
    places = [INT8_PLACE**place for place in reversed(range(INT8_PARTS))]
    largest = vectors.abs().amax(1).clamp(min=1e-6)  # products with tinier scales would be slow
    scales = largest / (127 * places[0])
    rest = (vectors / scales[:, None]).round()
    parts = []
    for place in places:
        parts.append((rest / place).round())
        rest = rest - parts[-1] * place
    return torch.stack(parts).to(torch.int8), scales


def _tiles(parts: Tensor) -> NDArray[np.int32]:
    """(P, groups * 16, width) as tiles, in which a row holds four bytes of each word."""
    count, words, width = parts.view(torch.int32).shape
    order = parts.view(torch.int32).view(count, words // GROUP, GROUP, width // GROUP, GROUP)
    tiles: NDArray[np.int32] = order.permute(1, 3, 0, 4, 2).contiguous().numpy()
    return tiles  # (groups, steps, P, 16, 16)
