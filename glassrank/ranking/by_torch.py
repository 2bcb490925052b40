"""Words and scores as PyTorch computes them: any family, on a CPU or a GPU, exact or rounded."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassrank.models.fast import placed
from glassrank.models.ranker import TokenBatch, Words, as_array
from glassrank.ranking.query_encoding import QueryEncoder


class ByTorch:
    """A model of `models/contract.py`."""

    def __init__(self, model: Any, device: str, longest: int, *, exact: bool) -> None:
        self.model: Any
        self.fast_model: Any
        self.model, self.fast_model = placed(model, device, exact=exact)
        self.device = self.model.device
        pieces = self.fast_model.reads_pieces
        self.dtype = next(self.fast_model.parameters()).dtype if pieces else torch.float32
        rounded = self.device.type == "cuda" and pieces
        encodes = self.fast_model if rounded else self.model
        self.encode_query = QueryEncoder(encodes, longest, exact=exact)

    @torch.no_grad()
    def encode_doc(self, batch: TokenBatch) -> Words:
        """Without gradients."""
        words: Words = self.fast_model.encode_doc(batch)
        return words

    @torch.no_grad()
    def scores(
        self, query: Words, docs: Words, first_stage: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """By the model's own `interact`."""
        same = self.model.for_many(query, len(docs.mask))
        docs = Words(*(tensor.to(self.device) for tensor in docs))
        given = None if first_stage is None else torch.from_numpy(first_stage).to(self.device)
        return as_array(self.fast_model.rank(same, docs, given).score).astype(np.float32)
