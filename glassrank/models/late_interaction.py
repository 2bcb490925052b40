"""Late interaction: a pretrained encoder reads query and document apart, and their pieces meet as
unit vectors of a few dimensions.

O. Khattab, M. Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late
Interaction over BERT", SIGIR 2020. What the pieces' similarities are worth differs: see
`kernel_bert.py` and `maxsim.py`.
"""

import copy
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassrank.models.contract import PieceText, TokenBatch, Words, WordTable
from glassrank.models.pieces import PieceRanker
from glassrank.models.pretrained import Pretrained
from glassrank.nn.match import unit
from glassrank.nn.transformer import Encoder, EncoderConfig


@dataclass(frozen=True)
class LateInteractionConfig:
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    text: PieceText = field(default_factory=PieceText)
    size: int = 128
    """Of the vectors that are compared, and stored: 64 to 192 serve well."""


class LateInteraction(PieceRanker):
    """Subclasses say what the similarities add up to. A query piece's weight, between 0 and 2,
    comes from its own vector and stands in the place of its idf."""

    stores_words = True
    weighs_terms = True
    interacts_rounded = False

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
        own = self.term_weight(states.to(self.term_weight.weight)).squeeze(-1)
        return 2 * torch.sigmoid(own.float())

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
