"""Rows of a store as a GPU gets them: copied some at a time, whatever they are stored as."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from glassrank.rerank import gpu_scoring
from glassrank.rerank.gpu_scoring import GPURows


@dataclass
class Part:
    vectors: NDArray[np.generic]
    scales: NDArray[np.float32] | None = None


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint16"])
def test_copies_are_the_rows(rows: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_scoring, "_COPIED_BYTES", 50)
    values = torch.randn(rows, 8) * 20
    if dtype == "uint16":
        stored = values.bfloat16().view(torch.int16).numpy().view(np.uint16)
        expected = values.bfloat16()
    else:
        stored = values.numpy().astype(dtype)
        expected = torch.from_numpy(stored.copy())
    scales = np.random.default_rng(0).random(rows, np.float32) if dtype == "int8" else None
    for array in (stored, scales):
        if array is not None:
            array.flags.writeable = False  # as those of a memory-mapped file
    copies, part = GPURows(torch.device("cpu")), Part(stored, scales)
    found, own = copies.of(part)
    assert torch.equal(found, expected)
    assert (own is None) == (scales is None)
    assert own is None or np.array_equal(own.numpy(), scales)
    assert copies.of(part)[0] is found  # once
