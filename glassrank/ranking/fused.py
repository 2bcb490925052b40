"""Stored words scored in one pass: what a model's readouts say, by compiled code.

`interact` is the plain form; both give the same scores.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.models.ranker import AnyRanker, Words, as_array
from glassrank.nn.few_bits import GROUP
from glassrank.store import Part, Store

_ON_CPU = ("bf16", "int8", "float32", "int3")


class Fused(Protocol):
    """Scores stored words without making floats of them first."""

    def scores(
        self,
        query: Words,
        part: Part,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        first_stage: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Of documents that are runs of a part's rows."""


def fused_pooling(model: AnyRanker, store: Store) -> Fused | None:
    """None where the plain form has to serve: another kind of model, ids are stored, or a GPU's
    memory does not hold the store."""
    if is_on_gpu(model):
        from glassrank.ranking.fused_gpu import fused_on_gpu

        return fused_on_gpu(model, store)
    readouts = model.readouts() if store.dtype in _ON_CPU else []
    if store.dtype == "int3" and any((r.doc_columns.start or 0) % GROUP for r in readouts):
        return None  # their values begin within a group
    return FusedPooling(model) if readouts else None


def is_on_gpu(model: AnyRanker) -> bool:
    """Whether PyTorch computes it there."""
    return model.device is not None and model.device.type == "cuda"


class FusedPooling:
    """A model's kernels and weights as plain arrays."""

    def __init__(self, model: AnyRanker) -> None:
        self._weighs_terms = model.weighs_terms
        self._kernels = model.config.kernels
        self._readouts = [
            (as_array(r.log), as_array(r.length), r.query_columns, r.doc_columns)
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

        vectors = as_array(query.vectors[0]).reshape(query.mask.shape[1], -1)  # (Q, E)
        weights = as_array((query.idf if self._weighs_terms else query.mask)[0])  # (Q,)
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
