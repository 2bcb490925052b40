"""Stored words scored on a GPU: the rows stay in its memory, and one kernel reads them once."""

from importlib.util import find_spec
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassrank.models import Ranker, Words


class Rows(Protocol):
    """As a part of a store has them."""

    vectors: NDArray[np.generic]  # (T, S)
    scales: NDArray[np.float32] | None  # (T,)


class GPUPooling:
    """`FusedPooling` for a model on a GPU. A part's rows are copied there when they are first
    needed."""

    def __init__(self, model: Ranker) -> None:
        self._device = next(model.parameters()).device
        self._weighs_terms = model.weighs_terms
        self._kernels = model.config.kernels
        with torch.no_grad():
            self._readouts = model.readouts()
        weight = model.first_stage_weight
        self._first_stage_weight = 0.0 if weight is None else weight.item()
        self._copies: dict[int, tuple[Rows, Tensor, Tensor | None]] = {}

    @classmethod
    def of(cls, model: Ranker) -> "GPUPooling | None":
        on_gpu = next(model.parameters()).is_cuda
        return cls(model) if on_gpu and model.readouts() and find_spec("triton") else None

    @torch.no_grad()
    def scores(
        self,
        query: Words,
        part: Rows,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        from glassrank.nn.pool_triton import pool_triton

        rows, scales = self._rows(part)
        first, count = (
            torch.from_numpy(one).to(self._device) for one in (starts, lengths.astype(np.int32))
        )
        vectors = query.vectors[0].flatten(1)  # (Q, E)
        weights = (query.idf if self._weighs_terms else query.mask)[0]  # (Q,)
        total = torch.from_numpy(first_stage).to(self._device) * self._first_stage_weight
        for readout in self._readouts:
            total = total + pool_triton(
                vectors[:, readout.query_columns], weights, rows, scales, first, count,
                self._kernels, readout.log, readout.length,
                first_column=readout.doc_columns.start or 0,
            )  # fmt: skip
        found: NDArray[np.float32] = total.cpu().numpy()
        return found

    def _rows(self, part: Rows) -> tuple[Tensor, Tensor | None]:
        if id(part) not in self._copies:  # the part is kept too, so that its id stays its own
            vectors = torch.from_numpy(np.ascontiguousarray(part.vectors)).to(self._device)
            if vectors.dtype == torch.uint16:
                vectors = vectors.view(torch.bfloat16)
            scales = None if part.scales is None else torch.from_numpy(part.scales.copy())
            own = None if scales is None else scales.to(self._device)
            self._copies[id(part)] = (part, vectors, own)
        return self._copies[id(part)][1:]
