"""Stored words scored on a GPU: the rows stay in its memory, and are read once for a query."""

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassrank.models.contract import Ranker, Words
from glassrank.store import Store

_BYTES_AT_ONCE = 1 << 26
_DTYPES = ("bf16", "int8", "float32", "float16")


class StoredPart(Protocol):
    """As a store has it."""

    vectors: NDArray[np.generic]  # (T, S)
    scales: NDArray[np.float32] | None  # (T * V,)


class Copies:
    """A part's rows on a GPU, copied there when they are first needed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._kept: dict[int, tuple[StoredPart, Tensor, Tensor | None]] = {}

    def of(self, part: StoredPart) -> tuple[Tensor, Tensor | None]:
        """A part's rows, and their scales if it has any."""
        if id(part) not in self._kept:  # the part is kept too, so that its id stays its own
            scales = None if part.scales is None else self._copied(part.scales)
            self._kept[id(part)] = (part, self._copied(part.vectors), scales)
        return self._kept[id(part)][1:]

    def _copied(self, rows: NDArray[np.generic]) -> Tensor:
        """Some rows at a time: they are on a disk, and may be more than the memory holds."""
        bits = rows.view(np.int16) if rows.dtype == np.uint16 else rows  # of bf16
        like = torch.from_numpy(bits[:0].copy())
        made = torch.empty(bits.shape, dtype=like.dtype, device=self._device)
        step = max(1, _BYTES_AT_ONCE // max(1, bits[:1].nbytes))
        for start in range(0, len(bits), step):
            made[start : start + step] = torch.from_numpy(bits[start : start + step].copy())
        return made.view(torch.bfloat16) if rows.dtype == np.uint16 else made


class OnGPU(ABC):
    """What both ways share: rows, and the first stage's share of a score."""

    def __init__(self, model: Ranker) -> None:
        self._device = next(model.parameters()).device
        self._copies = Copies(self._device)
        weight = model.first_stage_weight
        self._first_stage_weight = 0.0 if weight is None else weight.item()

    @torch.no_grad()
    def scores(
        self,
        query: Words,
        part: StoredPart,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Of documents that are runs of a part's rows."""
        first, count = (
            torch.from_numpy(one).to(self._device) for one in (starts, lengths.astype(np.int32))
        )
        found = self._score(query, *self._copies.of(part), first, count)
        own: NDArray[np.float32] = found.float().cpu().numpy()
        return own + self._first_stage_weight * first_stage

    @abstractmethod
    def _score(
        self, query: Words, rows: Tensor, scales: Tensor | None, starts: Tensor, lengths: Tensor
    ) -> Tensor:
        """Without the first stage's share: (n,)."""


class GPUPooling(OnGPU):
    """Soft counts by one kernel, as a model's readouts say."""

    def __init__(self, model: Ranker) -> None:
        super().__init__(model)
        self._weighs_terms = model.weighs_terms
        self._kernels = model.config.kernels
        with torch.no_grad():
            self._readouts = model.readouts()

    def _score(
        self, query: Words, rows: Tensor, scales: Tensor | None, starts: Tensor, lengths: Tensor
    ) -> Tensor:
        from glassrank.nn.gpu.kernels import pool_triton

        vectors = query.vectors[0].flatten(1)  # (Q, E)
        weights = (query.idf if self._weighs_terms else query.mask)[0]  # (Q,)
        found: list[Tensor] = [
            pool_triton(
                vectors[:, readout.query_columns], weights, rows, scales, starts, lengths,
                self._kernels, readout.log, readout.length,
                first_column=readout.doc_columns.start or 0,
            )
            for readout in self._readouts
        ]  # fmt: skip
        return torch.stack(found).sum(0) if len(found) > 1 else found[0]


class GPUInteraction(OnGPU):
    """MORES's interaction over stored keys and values."""

    def __init__(self, model: Ranker, interaction: Any) -> None:
        super().__init__(model)
        self._interaction = interaction

    def _score(
        self, query: Words, rows: Tensor, scales: Tensor | None, starts: Tensor, lengths: Tensor
    ) -> Tensor:
        each = None if scales is None else scales.view(len(rows), -1)  # (T, V)
        found: Tensor = self._interaction.scores(query.vectors, rows, each, starts, lengths)
        return found


def fused_on_gpu(model: Any, store: Store) -> OnGPU | None:
    """None where a GPU's memory does not hold the store, or its rows are of another kind."""
    if store.dtype not in _DTYPES or store.bytes > _room(model.device):
        return None
    return on_gpu(model, store.layout.reuse == "s2")


def _room(device: torch.device) -> float:
    """Bytes of a GPU's memory that rows may take, with some left for what is computed."""
    return 0.8 * torch.cuda.mem_get_info(device)[0]


def on_gpu(model: Ranker, projected: bool) -> OnGPU | None:
    """The way for this model; `projected` says that MORES's keys and values are stored."""
    if not next(model.parameters()).is_cuda or not find_spec("triton"):
        return None
    if model.readouts():
        return GPUPooling(model)
    if not projected:
        return None
    from glassrank.models.fast_gpu import StoredMORES

    interaction = StoredMORES.of(model)
    return None if interaction is None else GPUInteraction(model, interaction)
