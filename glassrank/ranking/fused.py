"""Stored words scored in one pass: what a model's readouts say, by compiled code.

`interact` is the plain form; both give the same scores.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.models import Ranker, Words
from glassrank.ranking.fused_gpu import OnGPU, on_gpu
from glassrank.store import Part, Store

_DTYPES = {"cpu": ("bf16", "int8", "float32"), "cuda": ("bf16", "int8", "float32", "float16")}


def fused_pooling(model: Ranker, store: Store) -> "FusedPooling | OnGPU | None":
    """None where the plain form has to serve: another kind of model, ids are stored, or a GPU's
    memory does not hold the store."""
    device = next(model.parameters()).device
    if store.dtype not in _DTYPES.get(device.type, ()):
        return None
    if device.type == "cpu":
        return FusedPooling(model) if model.readouts() else None
    return on_gpu(model, store.layout.reuse == "s2") if store.bytes <= _room(device) else None


def _room(device: torch.device) -> float:
    """Bytes of a GPU's memory that rows may take, with some left for what is computed."""
    return 0.8 * torch.cuda.mem_get_info(device)[0]


class FusedPooling:
    """A model's kernels and weights as plain arrays."""

    def __init__(self, model: Ranker) -> None:
        self._weighs_terms = model.weighs_terms
        self._kernels = model.config.kernels
        self._readouts = [
            (_numpy(r.log), _numpy(r.length), r.query_columns, r.doc_columns)
            for r in model.readouts()
        ]
        weight = model.first_stage_weight
        self._first_stage_weight = 0.0 if weight is None else weight.item()

    def scores(
        self,
        query: Words,
        part: Part,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Of documents that are runs of a part's rows."""
        from glassrank.nn.cpu.kernels import StoredRows, pool_cpu  # numba: only where it is used

        vectors = query.vectors[0].flatten(1).numpy()  # (Q, E)
        weights = (query.idf if self._weighs_terms else query.mask)[0].numpy()  # (Q,)
        rows = StoredRows(part.vectors, part.scales)
        total = self._first_stage_weight * first_stage
        for log, length, query_columns, doc_columns in self._readouts:
            own = np.ascontiguousarray(vectors[:, query_columns])
            found: Any = pool_cpu(
                own, weights, rows, starts, lengths, self._kernels, log, length,
                first_column=doc_columns.start or 0,
            )  # fmt: skip
            total = total + found
        return total.astype(np.float32)


def _numpy(values: torch.Tensor) -> NDArray[np.float32]:
    return values.detach().float().cpu().numpy()
