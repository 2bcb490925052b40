"""Prepared arrays as tensors on the device that trains: batches are cut there, not copied over."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassrank.models import TokenBatch
from glassrank.ragged import Ragged
from glassrank.train.prepared import Split
from glassrank.train.sampler import Batch


def on_device(array: NDArray[np.int64], device: torch.device) -> Tensor:
    """Without waiting for the GPU: only copies out of pinned memory do not."""
    here = torch.from_numpy(array)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here


@dataclass(frozen=True)
class Tokens:
    """All queries or documents, padded to the longest that the model reads."""

    ids: Tensor  # (n, L) on the device
    lengths: NDArray[np.int64]  # (n,) here: cutting a batch asks the device nothing

    @classmethod
    def of(cls, rows: Ragged, longest: int, device: torch.device) -> "Tokens":
        """Cut to the longest that is read."""
        lengths = np.minimum(np.diff(rows.offsets), longest)
        return cls(torch.from_numpy(rows.padded(longest)).to(device), lengths)

    def batch(self, numbers: NDArray[np.int64]) -> TokenBatch:
        """(B, longest of these)."""
        longest = max(1, int(self.lengths[numbers].max(initial=1)))
        ids = self.ids[on_device(numbers, self.ids.device), :longest]
        return TokenBatch(ids, (ids > 0).float())


@dataclass(frozen=True)
class SplitTensors:
    """A split on the device that trains."""

    queries: Tokens
    docs: Tokens
    split: Split
    grades: Tensor  # beside split.docs.values
    first_stage: Tensor
    teacher: Tensor | None

    @classmethod
    def of(
        cls, split: Split, docs: Tokens, query_length: int, device: torch.device
    ) -> "SplitTensors":
        """Copies a split there."""
        teacher = None if split.teacher is None else torch.from_numpy(split.teacher).to(device)
        return cls(
            Tokens.of(split.queries, query_length, device),
            docs,
            split,
            torch.from_numpy(split.grades).to(device),
            torch.from_numpy(split.first_stage).to(device),
            teacher,
        )

    def examples(self, batch: Batch) -> "Examples":
        """The queries and documents of a batch."""
        places = on_device(batch.candidates, self.grades.device)
        return Examples(
            self.queries.batch(batch.queries),
            self.docs.batch(self.split.docs.values[batch.candidates.ravel()]),
            self.grades[places].clamp(min=0),
            self.first_stage[places],
            None if self.teacher is None else self.teacher[places],
        )


@dataclass(frozen=True)
class Examples:
    """What one step learns from: B queries, and N documents for each, the positive first."""

    query: TokenBatch  # (B, Q)
    doc: TokenBatch  # (B * N, D), query by query
    grades: Tensor  # (B, N)
    first_stage: Tensor  # (B, N)
    teacher: Tensor | None  # (B, N)
