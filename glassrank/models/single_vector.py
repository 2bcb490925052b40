"""One vector for each text: the mean of its pieces, or the first of them, compared once.

N. Reimers, I. Gurevych, "Sentence-BERT", EMNLP 2019. What people store today, and so what a
re-ranker is compared with: a sentence transformer's weights rank here as they do there.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

import torch
from torch import nn

from glassrank.models.contract import Output, PieceRanker, PieceText, TokenBatch, Words, WordTable
from glassrank.models.pretrained import Pretrained
from glassrank.nn.match import unit
from glassrank.nn.transformer import Encoder, EncoderConfig

Pooling = Literal["mean", "cls"]
"""The mean of all pieces, or the first one."""


@dataclass(frozen=True)
class SingleVectorConfig:
    """The encoder, and how texts become its pieces."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    text: PieceText = field(default_factory=PieceText)
    pooling: Pooling = "mean"


class SingleVector(PieceRanker):
    """The cosine of two vectors, scaled."""

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
        if self.config.pooling == "cls":
            pooled = states[:, 0]  # (B, H)
        else:
            pooled = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
        has_words = batch.mask.amax(1, keepdim=True)  # (B, 1)
        return Words(unit(pooled)[:, None], has_words, has_words)

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
