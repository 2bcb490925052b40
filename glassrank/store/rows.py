"""Words as they are stored: bf16, int8 with a scale for each vector, float16, float32, or word ids.

Rounding is to the nearest value, and to the even one where two are as near.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from glassrank.compiled import compiled
from glassrank.errors import InputError
from glassrank.store.manifest import IDS, Layout, array_names

Rows = dict[str, NDArray[Any]]
"""Some words, one after another, by the names of their files: `vectors` (T, S), or `ids` (T, 1),
and for int8 also `scales` (T, V): a row is one vector, or several side by side."""

_ARRAYS: dict[str, type[np.generic]] = {
    "bf16": np.uint16,  # numpy has no bf16: its bits
    "int8": np.int8,
    "float16": np.float16,
    "float32": np.float32,
    IDS: np.int32,
}
_INFINITE = {"bf16": 0x7F80, "float16": 0x7C00, "float32": 0x7F80_0000}
"""The bits that infinity and what is not a number have in common."""
_LARGEST = {
    "bf16": torch.finfo(torch.bfloat16).max,
    "float16": torch.finfo(torch.float16).max,
}


class EncodedDocs(NamedTuple):
    """Some documents of a block, as rows."""

    docs: NDArray[np.int64]  # (n,) places in the block
    lengths: NDArray[np.int64]  # (n,)
    rows: Rows  # of all of them, one document after another
    cut: int = 0  # documents that are longer than what was read of them

    @property
    def bytes(self) -> int:
        """Of their rows."""
        return sum(array.nbytes for array in self.rows.values())


def array_kinds(layout: Layout) -> dict[str, list[type[np.generic]]]:
    """The files of a part, and their dtypes."""
    kinds: dict[str, list[type[np.generic]]] = {
        "offsets": [np.int64],
        "contents": [np.uint64],
        "scales": [np.float32],
        layout.rows_name: [_ARRAYS[layout.dtype]],
    }
    return {name: kinds[name] for name in array_names(layout)}


def row_widths(layout: Layout) -> dict[str, int]:
    """How many values of each file of rows belong to one row."""
    widths = {layout.rows_name: layout.stride}
    return {**widths, "scales": layout.scales} if layout.dtype == "int8" else widths


def is_usable(array: NDArray[Any], dtype: str) -> bool:
    """Whether the numbers of a file of rows are finite, and ids not below 0."""
    if dtype == IDS:
        return bool(array.min(initial=0) >= 0)
    if array.dtype == np.int8:
        return True
    bits = array.view(np.uint16 if array.itemsize == 2 else np.uint32)
    infinite = _INFINITE[dtype if array.itemsize == 2 else "float32"]
    return not _any_has(bits, bits.dtype.type(infinite))


@compiled
def _any_has(values: NDArray[Any], bits: Any) -> bool:
    count = 0  # without a branch for each: several are looked at together
    for i in range(len(values)):
        count += (values[i] & bits) == bits
    return count > 0


def row_bytes(layout: Layout) -> int:
    """That one row takes."""
    scales = 4 * layout.scales if layout.dtype == "int8" else 0
    return layout.stride * np.dtype(_ARRAYS[layout.dtype]).itemsize + scales


def pack(vectors: Tensor, layout: Layout) -> Rows:
    """(T, E) floats, on any device, to rows."""
    largest = _LARGEST.get(layout.dtype, torch.finfo(torch.float32).max)
    if vectors.numel() and not bool(vectors.abs().amax() <= largest):  # not so for NaN either
        raise InputError(
            f"the {layout.model} gives vectors that {layout.dtype} cannot hold (too large, or not "
            "numbers at all); take another dtype, or train the model again"
        )
    padding = (0, layout.stride - layout.width)
    if layout.dtype == "int8":
        each = torch.unflatten(vectors.float(), 1, (layout.scales, -1))  # (T, V, E / V)
        scales = each.abs().amax(2) / 127  # (T, V)
        # A vector of zeros has the scale 0, and so may one of the smallest numbers there are.
        steps = each / scales.where(scales > 0, 1)[..., None]  # (T, V, E / V)
        values = steps.round().clamp(-127, 127).to(torch.int8).flatten(1)  # (T, E)
        full = functional.pad(values, padding)  # (T, S)
        return {"vectors": full.cpu().numpy(), "scales": scales.cpu().numpy()}
    full = functional.pad(vectors.float(), padding)  # (T, S)
    if layout.dtype == "bf16":
        return {"vectors": full.bfloat16().view(torch.int16).cpu().numpy().view(np.uint16)}
    return {"vectors": (full.half() if layout.dtype == "float16" else full).cpu().numpy()}


def unpack(
    rows: Rows, layout: Layout, device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Copied rows (..., S) to floats (..., E)."""
    values = rows["vectors"]
    if layout.dtype == "bf16":
        stored = torch.from_numpy(values.view(np.int16)).to(device).view(torch.bfloat16)
    else:
        stored = torch.from_numpy(values).to(device)  # (..., S)
    vectors = stored[..., : layout.width].to(dtype)  # (..., E)
    if layout.dtype == "int8":
        scales = torch.from_numpy(rows["scales"]).to(device, dtype)  # (..., V)
        each = torch.unflatten(vectors, -1, (layout.scales, -1))  # (..., V, E / V)
        each *= scales[..., None]  # in place: a copy as large as this one takes longer than this
    return vectors
