"""`rows.py` for tensors: words that PyTorch encodes, or computes with, on any device."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from glassrank.models.ranker import AnyRanker, TokenBatch, Words
from glassrank.store.manifest import IDS, Layout
from glassrank.store.rows import Rows, check_range, pack, unpack


def pack_tensor(vectors: Tensor, layout: Layout) -> Rows:
    """As `pack`."""
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
    rows: Rows, layout: Layout, device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """As `unpack`, where the model is."""
    values = rows["vectors"]
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


@torch.no_grad()
def words_of(
    rows: Rows,
    real: NDArray[np.float32],
    layout: Layout,
    model: AnyRanker | None,
    dtype: torch.dtype | None,
) -> Words:
    """Padded rows of documents as `encode_doc` gives them; ids are encoded by the model."""
    device = torch.device("cpu") if model is None else model.device
    mask = torch.from_numpy(real).to(device)  # (B, L)
    if layout.dtype == IDS:
        if model is None:
            raise TypeError("a store of word ids must be opened with its model, to encode them")
        return model.encode_doc(TokenBatch(torch.from_numpy(rows[IDS][..., 0]).to(device), mask))
    vectors = unpack_tensor(rows, layout, device, dtype or torch.float32)  # (B, L, E)
    idf = mask[(..., *(None for _ in layout.idf_axes))]
    return Words(
        torch.unflatten(vectors, 2, layout.axes),  # (B, L, ...)
        mask,
        idf.expand(*mask.shape, *layout.idf_axes),
    )
