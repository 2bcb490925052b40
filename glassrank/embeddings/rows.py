"""Words as they are stored: bf16, int8 or int3 with a scale for each vector, float16, float32, or
word ids; packed from arrays, or from tensors that PyTorch encodes or computes with on any device.

Rounding is to the nearest value, and to the even one where two are as near.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.compiled import compiled
from glassrank.backends.quantization import (
    GROUP,
    GROUP_BYTES,
    from_bfloat16,
    pack_codes,
    quantize_int3,
    to_bfloat16,
    unpack_codes,
)
from glassrank.embeddings.manifest import IDS, SCALED, Layout, array_dtypes
from glassrank.errors import InputError
from glassrank.models.model import Model, TokenBatch, TokenEmbeddings
from glassrank.storage.mapped_arrays import Floats, Ints

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Rows = dict[str, NDArray[Any]]
"""Some words, one after another, by the names of their files: `vectors` (T, S), or `ids` (T, 1),
and for int8 and int3 also `scales` (T, V): a row is one vector, or several side by side."""

_INFINITE = {"bf16": 0x7F80, "float16": 0x7C00, "float32": 0x7F80_0000}
"""The bits that infinity and what is not a number have in common."""
_LARGEST = {"bf16": 3.3895313892515355e38, "float16": 65504.0}


class DocPassages(NamedTuple):
    """How some documents are divided, one after the other."""

    counts: Ints  # (n,) passages of each
    spans: NDArray[np.int32]  # (P, 2) characters of the documents' texts
    cut: NDArray[np.uint8]  # (n,) 1 where something is in no passage


class EncodedPassages(NamedTuple):
    """Some passages of a block, as rows."""

    places: Ints  # (n,) among all passages that are encoded together
    lengths: Ints  # (n,)
    rows: Rows  # of all of them, one passage after another

    @property
    def bytes(self) -> int:
        """Of their rows."""
        return sum(array.nbytes for array in self.rows.values())


def row_widths(layout: Layout) -> dict[str, int]:
    """How many values of each file of rows belong to one row."""
    values = layout.stride
    if layout.dtype == "int3":
        values = values // GROUP * GROUP_BYTES
    widths = {layout.rows_name: values}
    return {**widths, "scales": layout.scales} if layout.dtype in SCALED else widths


def is_usable(array: NDArray[Any], dtype: str) -> bool:
    """Whether the numbers of a file of rows are finite, and ids not below 0."""
    if dtype == IDS:
        return bool(array.min(initial=0) >= 0)
    if array.itemsize == 1:  # any bits are numbers
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
    dtypes = array_dtypes(layout)
    return sum(
        width * np.dtype(dtypes[name][0]).itemsize for name, width in row_widths(layout).items()
    )


def check_range(largest: float, layout: Layout) -> None:
    """Refuses vectors whose largest value rows cannot hold."""
    if not largest <= _LARGEST.get(layout.dtype, np.finfo(np.float32).max):  # nor what is no number
        raise InputError(
            f"the {layout.model} gives vectors that {layout.dtype} cannot hold (too large, or not "
            "numbers at all); take another dtype, or train the model again"
        )


def quantize_int8(vectors: Floats) -> tuple[NDArray[np.int8], Floats]:
    """(..., E) floats to integers (..., E), and their scales (...)."""
    scales = np.abs(vectors).max(-1) / np.float32(127)
    # A vector of zeros has the scale 0, and so may one of the smallest numbers there are.
    steps = np.rint(vectors / np.where(scales > 0, scales, np.float32(1))[..., None])
    return steps.clip(-127, 127).astype(np.int8), scales


def pack(vectors: Floats, layout: Layout) -> Rows:
    """(T, E) floats to rows."""
    check_range(float(np.abs(vectors).max(initial=0)), layout)
    full = np.zeros((len(vectors), layout.stride), np.float32)  # (T, S)
    full[:, : layout.width] = vectors
    if layout.dtype in SCALED:
        each = vectors.reshape(len(vectors), layout.scales, layout.width // layout.scales)
        is_int8 = layout.dtype == "int8"
        values, scales = quantize_int8(each) if is_int8 else quantize_int3(each)
        padded: NDArray[Any] = np.zeros(full.shape, values.dtype)
        padded[:, : layout.width] = values.reshape(vectors.shape)
        return {"vectors": padded if is_int8 else pack_codes(padded), "scales": scales}
    if layout.dtype == "bf16":
        return {"vectors": to_bfloat16(full)}
    return {"vectors": full.astype(np.float16) if layout.dtype == "float16" else full}


def unpack(rows: Rows, layout: Layout) -> Floats:
    """Copied rows (..., S) to floats (..., E)."""
    stored = rows["vectors"]
    if layout.dtype == "int3":
        stored = unpack_codes(stored) - np.float32(3.5)
    stored = stored[..., : layout.width]
    if layout.dtype == "bf16":
        return from_bfloat16(stored)
    vectors: Floats = stored.astype(np.float32)
    if layout.dtype in SCALED:
        axes = (*vectors.shape[:-1], layout.scales, layout.width // layout.scales)
        each = vectors.reshape(axes)  # (..., V, E / V), a view
        each *= rows["scales"][..., None]
    return vectors


def pack_tensor(vectors: "Tensor", layout: Layout) -> Rows:
    """As `pack`."""
    import torch
    from torch.nn import functional

    check_range(float(vectors.abs().amax()) if vectors.numel() else 0.0, layout)
    padding = (0, layout.stride - layout.width)
    if layout.dtype == "int3":
        return pack(vectors.float().cpu().numpy(), layout)
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


def unpack_tensor(
    rows: Rows, layout: Layout, device: "torch.device", dtype: "torch.dtype | None" = None
) -> "Tensor":
    """As `unpack`, where the model is; float32 unless another type is named."""
    import torch

    values, dtype = rows["vectors"], dtype or torch.float32
    if layout.dtype == "int3":
        return torch.from_numpy(unpack(rows, layout)).to(device, dtype)
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


def to_embeddings(
    rows: Rows, real: Floats, layout: Layout, model: Model | None, dtype: "torch.dtype | None"
) -> TokenEmbeddings:
    """Padded rows of documents as `encode_doc` gives them; ids are encoded by the model."""
    import torch

    device = torch.device("cpu") if model is None else model.device
    mask = torch.from_numpy(real).to(device)  # (B, L)
    if layout.dtype == IDS:
        if model is None:
            raise TypeError("a store of word ids must be opened with its model, to encode them")
        ids = torch.from_numpy(rows[IDS][..., 0]).to(device)
        with torch.no_grad():
            return model.encode_doc(TokenBatch(ids, mask))
    vectors = unpack_tensor(rows, layout, device, dtype)  # (B, L, E)
    idf = mask[(..., *(None for _ in layout.idf_axes))]
    return TokenEmbeddings(
        torch.unflatten(vectors, 2, layout.axes),  # (B, L, ...)
        mask,
        idf.expand(*mask.shape, *layout.idf_axes),
    )
