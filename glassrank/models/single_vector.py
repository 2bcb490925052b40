"""One vector for each text: the mean of its pieces, compared once.

N. Reimers, I. Gurevych, "Sentence-BERT", EMNLP 2019. What people store today, and so what a
re-ranker is compared with: a sentence transformer's weights rank here as they do there.
"""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import nn

from glassrank.models.contract import Output, PieceText, TokenBatch, Words, WordTable
from glassrank.models.pieces import PieceRanker
from glassrank.models.pretrained import Pretrained
from glassrank.nn.match import unit
from glassrank.nn.transformer import Encoder, EncoderConfig


@dataclass(frozen=True)
class SingleVectorConfig:
    """The encoder, and how texts become its pieces."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    text: PieceText = field(default_factory=PieceText)


class SingleVector(PieceRanker):
    """The cosine of two means, scaled."""

    name = "single_vector"
    config_type = SingleVectorConfig
    stores_words = True
    one_row = True
    interacts_rounded = False
    large = False

    def __init__(self, config: SingleVectorConfig, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        self.encoder = Encoder(config.encoder)
        self.scale = nn.Parameter(torch.tensor(3.0))  # its exponential: cosines are small numbers

    def encode_query(self, batch: TokenBatch) -> Words:
        """(B, 1, H): the text as one word."""
        states = self.encoder(batch.ids, batch.mask).float()  # (B, L, H)
        mask = batch.mask[..., None]
        mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1)  # (B, H)
        has_words = batch.mask.amax(1, keepdim=True)  # (B, 1)
        return Words(unit(mean)[:, None], has_words, has_words)

    def encode_doc(self, batch: TokenBatch) -> Words:
        return self.encode_query(batch)

    def interact(self, query: Words, doc: Words, explain: bool = False) -> Output:
        cosine = (query.vectors.float() * doc.vectors.float()).sum((1, 2))  # (B,)
        return Output(self.scale.exp() * cosine, {"similarity": cosine[:, None, None]})

    @classmethod
    def start(cls, bert: Pretrained, **settings: object) -> Self:
        config = SingleVectorConfig(bert.config, PieceText(lowercase=bert.lowercase))
        model = cls(replace(config, **settings))  # type: ignore[arg-type]
        model.encoder.load_state_dict(bert.encoder_weights())
        return model
