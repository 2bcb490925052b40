"""Late interaction: a pretrained encoder reads query and document apart, and their pieces meet as
unit vectors of a few dimensions.

O. Khattab, M. Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late
Interaction over BERT", SIGIR 2020. What the pieces' similarities are worth differs: here is MaxSim,
as in ColBERT, with a learned weight for each query piece; `kernel_bert.py` has TK's kernels.
"""

import copy
from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassrank.models.contract import Output, PieceRanker, PieceText, TokenBatch, Words, WordTable
from glassrank.models.pretrained import Pretrained
from glassrank.models.served_families import (
    LateInteractionConfig,
    LateInteractionFamily,
    MaxSimFamily,
)
from glassrank.nn.match import match_matrix, pair_mask, unit
from glassrank.nn.transformer import Encoder

__all__ = ["LateInteraction", "LateInteractionConfig", "MaxSim"]


class LateInteraction(LateInteractionFamily, PieceRanker):
    """Subclasses say what the similarities add up to. A query piece's weight, between 0 and 2,
    comes from its own vector and stands in the place of its idf."""

    interacts_rounded = False
    large = False

    def __init__(self, config: Any, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        self.encoder = Encoder(config.encoder)
        self.projection = nn.Linear(config.encoder.size, config.size, bias=False)
        self.term_weight = nn.Linear(config.encoder.size, 1)
        nn.init.orthogonal_(self.projection.weight)  # similarities begin as the encoder has them
        nn.init.zeros_(self.term_weight.weight)  # and every piece counts 1
        nn.init.zeros_(self.term_weight.bias)

    def encode_query(self, batch: TokenBatch) -> Words:
        states = self.encoder(batch.ids, batch.mask)  # (B, Q, H)
        return Words(self.vectors(states), batch.mask, self.weights(states) * batch.mask)

    def encode_doc(self, batch: TokenBatch) -> Words:
        states = self.encoder(batch.ids, batch.mask)  # (B, D, H)
        return Words(self.vectors(states), batch.mask, batch.mask)

    def vectors(self, states: Tensor) -> Tensor:
        """Unit vectors (B, L, E) in float32, whatever the encoder computes in."""
        projected: Tensor = self.projection(states.to(self.projection.weight))
        return unit(projected.float())

    def weights(self, states: Tensor) -> Tensor:
        """Of query pieces: (B, Q)."""
        logits = self.term_weight(states.to(self.term_weight.weight)).squeeze(-1)
        return 2 * torch.sigmoid(logits.float())

    @torch.no_grad()
    def look_at(self, docs: Iterable[TokenBatch]) -> None:
        """The projection begins with the directions in which most of the states' length lies:
        similarities begin as near to the encoder's own as so few dimensions allow."""
        size = self.config.encoder.size
        moment = self.projection.weight.new_zeros(size, size, dtype=torch.float64)  # (H, H)
        for batch in docs:
            states = unit(self.encoder(batch.ids, batch.mask).float())[batch.mask > 0]  # (T, H)
            moment += (states.T @ states).double()
        if moment.any():
            directions = torch.linalg.eigh(moment).eigenvectors.T.flip(0)  # (H, H), longest first
            self.projection.weight.copy_(directions[: self.config.size])

    def rounded(self, dtype: torch.dtype) -> Self:
        """Only the encoder: kernels see the last bits of a similarity."""
        fast = copy.copy(self)
        fast._modules = dict(self._modules)  # its own, so that the trained model keeps its encoder
        fast.encoder = copy.deepcopy(self.encoder).to(dtype)
        return fast.eval()

    @classmethod
    def start(cls, bert: Pretrained, **settings: object) -> Self:
        """With the weights of a pretrained encoder; projection and weights are fresh."""
        given = {"text": PieceText(lowercase=bert.lowercase), **settings}
        model = cls(cls.config_type(bert.config, **given))
        model.encoder.load_state_dict(bert.encoder_weights())
        return model


class MaxSim(MaxSimFamily, LateInteraction):
    """Each query piece counts as much as the document piece most like it. The score is a sum over
    query pieces, so its parts are exact."""

    def __init__(self, config: LateInteractionConfig, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        self.scale = nn.Parameter(torch.tensor(1.0))  # its exponential: cosines are small numbers

    def interact(self, query: Words, doc: Words, explain: bool = False) -> Output:
        masks = query.mask.float().expand(len(doc.mask), -1), doc.mask.float()
        similarity = match_matrix(query.vectors.float(), doc.vectors.float(), *masks)  # (B, Q, D)
        # A document without pieces, or padding, is as far away as can be.
        best = similarity.masked_fill(pair_mask(*masks) == 0, -1.0).amax(2)  # (B, Q)
        part = self.scale.exp() * query.idf.float() * best * masks[0]  # (B, Q)
        return Output(part.sum(1), {"best match": part, "similarity": similarity})
