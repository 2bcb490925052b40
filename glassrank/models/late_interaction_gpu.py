"""A query of a late-interaction model on a GPU: the same words as `late_interaction.py`, in fewer
steps.

Needs Triton: nothing imports this file unless the model is on a GPU.
"""

import torch

from glassrank.models.contract import Ranker, TokenBatch, Words
from glassrank.models.late_interaction import LateInteraction
from glassrank.nn.gpu.few_rows import Folded, linear
from glassrank.nn.gpu.query_layers import QueryLayers, is_foldable, side_by_side
from glassrank.nn.match import unit


class QueriesOnGPU:
    """A model's encoder, with projection and weights as one layer behind it."""

    def __init__(self, model: LateInteraction) -> None:
        self._layers = QueryLayers(model.encoder.embeddings, model.encoder.stack())
        both = side_by_side(model.projection, model.term_weight)
        self._projected = Folded(both, self._layers.norm)

    @classmethod
    def of(cls, model: Ranker) -> "QueriesOnGPU | None":
        """None for models that this is not made for."""
        if not isinstance(model, LateInteraction) or not is_foldable(model.encoder):
            return None
        return cls(model)

    @torch.no_grad()
    def encode_query(self, batch: TokenBatch) -> Words:
        """A query (1, Q), which may be padded: vectors (1, Q, E), those of padding without
        meaning."""
        length = batch.mask.sum(1, dtype=torch.int32)  # (1,)
        rows = self._layers.before_norm(batch.ids[0], length)  # (Q, H)
        made = linear(rows, self._projected)[0].float()  # (Q, E + 1)
        weights = 2 * torch.sigmoid(made[:, -1]) * batch.mask[0]  # (Q,)
        return Words(unit(made[:, :-1])[None], batch.mask, weights[None])
