"""Scores stored rows on a GPU: they are copied to its memory once, and stay there."""

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassrank.embeddings import Part, Store
from glassrank.embeddings.part import PartRows
from glassrank.models.model import Floats, TokenEmbeddings
from glassrank.models.torch_models import Ranker

_COPIED_BYTES = 1 << 26
"""Of a part, copied at a time."""
_DTYPES = ("bf16", "int8", "float32", "float16")
_MEMORY_SHARE = 0.8
"""Of a GPU's free memory, that a store may take: the rest is for what is computed."""


class GPURows:
    """A part's rows on a GPU, copied there when they are first needed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._kept: dict[int, tuple[Part, Tensor, Tensor | None]] = {}

    def of(self, part: Part) -> tuple[Tensor, Tensor | None]:
        """A part's rows, and their scales if it has any."""
        if id(part) not in self._kept:  # the part is kept too, so that its id stays its own
            scales = None if part.scales is None else self._copied(part.scales)
            self._kept[id(part)] = (part, self._copied(part.vectors), scales)
        return self._kept[id(part)][1:]

    def _copied(self, rows: NDArray[np.generic]) -> Tensor:
        """Some rows at a time: they are on a disk, and may not fit in main memory."""
        bits = rows.view(np.int16) if rows.dtype == np.uint16 else rows  # of bf16
        like = torch.from_numpy(bits[:0].copy())
        made = torch.empty(bits.shape, dtype=like.dtype, device=self._device)
        step = max(1, _COPIED_BYTES // max(1, bits[:1].nbytes))
        for start in range(0, len(bits), step):
            made[start : start + step] = torch.from_numpy(bits[start : start + step].copy())
        return made.view(torch.bfloat16) if rows.dtype == np.uint16 else made


class _Rows(NamedTuple):
    """Passages as runs of rows, all of it on a GPU."""

    vectors: Tensor
    scales: Tensor | None
    starts: Tensor
    lengths: Tensor


class GPUScorer(ABC):
    """Rows on a GPU, and what the first stage adds to a score."""

    def __init__(self, model: Ranker) -> None:
        self._device = next(model.parameters()).device
        self._rows = GPURows(self._device)
        weight = model.first_stage_weight
        self._first_stage_weight = 0.0 if weight is None else weight.item()

    @torch.no_grad()
    def __call__(self, query: TokenEmbeddings, rows: PartRows, first_stage: Floats) -> Floats:
        """As a `FusedScorer`."""
        runs = rows.starts, rows.lengths.astype(np.int32)
        starts, lengths = (torch.from_numpy(run).to(self._device) for run in runs)
        found = self._score(query, _Rows(*self._rows.of(rows.part), starts, lengths))
        own: Floats = found.float().cpu().numpy()
        return own + self._first_stage_weight * first_stage

    @abstractmethod
    def _score(self, query: TokenEmbeddings, stored: _Rows) -> Tensor:
        """(n,) without what the first stage adds."""


class GPUPooling(GPUScorer):
    """Kernel pooling by one Triton kernel, as a model's scoring heads say."""

    def __init__(self, model: Ranker) -> None:
        super().__init__(model)
        self._weighs_terms = model.info.has_term_weights
        self._kernels = model.config.kernels
        with torch.no_grad():
            self._heads = model.scoring_heads()

    def _score(self, query: TokenEmbeddings, stored: _Rows) -> Tensor:
        from glassrank.backends.gpu.kernels import pool_triton

        vectors = query.vectors[0].flatten(1)  # (Q, E)
        weights = (query.idf if self._weighs_terms else query.mask)[0]  # (Q,)
        found: list[Tensor] = [
            pool_triton(
                vectors[:, head.query_columns], weights, *stored,
                self._kernels, head.log, head.length,
                first_column=head.doc_columns.start or 0,
            )
            for head in self._heads
        ]  # fmt: skip
        return torch.stack(found).sum(0) if len(found) > 1 else found[0]


class GPUInteraction(GPUScorer):
    """MORES's interaction over stored keys and values."""

    def __init__(self, model: Ranker, interaction: Any) -> None:
        super().__init__(model)
        self._interaction = interaction

    def _score(self, query: TokenEmbeddings, stored: _Rows) -> Tensor:
        rows, scales, *runs = stored
        each = None if scales is None else scales.view(len(rows), -1)  # (T, V)
        found: Tensor = self._interaction.scores(query.vectors, rows, each, *runs)
        return found


def choose_gpu_scorer(model: Any, store: Store) -> GPUScorer | None:
    """None where a GPU's memory does not hold the store, or nothing scores its rows there."""
    room = _MEMORY_SHARE * torch.cuda.mem_get_info(model.device)[0]
    if store.dtype not in _DTYPES or store.bytes > room or not find_spec("triton"):
        return None
    if model.scoring_heads():
        return GPUPooling(model)
    if store.layout.reuse != "s2":  # MORES's keys and values
        return None
    interaction = model.gpu_interaction()
    return None if interaction is None else GPUInteraction(model, interaction)
