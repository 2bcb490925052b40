"""A model as somebody else would write it: a file, and nothing in the package that knows of it."""

from dataclasses import dataclass

import torch
from torch import nn

from glassrank.models import EmbeddingTable, ModelInfo, Output, TokenEmbeddings, WordRanker


@dataclass(frozen=True)
class SoftTFConfig:
    size: int = 12
    power: int = 2


class SoftTF(WordRanker):
    """Similarities to a power, added up over the document, a bias for its length."""

    info = ModelInfo("soft_tf", SoftTFConfig, is_additive=True, summands=("soft tf", "length"))

    def __init__(self, config: SoftTFConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.length = nn.Parameter(torch.tensor(-0.1))

    def query_words(self, words: TokenEmbeddings) -> TokenEmbeddings:
        vectors = nn.functional.normalize(words.vectors, dim=-1)
        return words._replace(vectors=vectors)

    doc_words = query_words

    def interact(self, query: TokenEmbeddings, doc: TokenEmbeddings) -> Output:
        similarity = query.vectors @ doc.vectors.transpose(1, 2)  # (B, Q, D)
        similarity = similarity * query.mask[..., None] * doc.mask[:, None]
        counts = similarity.clamp(min=0) ** self.config.power  # (B, Q, D)
        part = self.scale * counts.sum(2)  # (B, Q)
        length = self.length * doc.mask.sum(1)  # (B,)
        score = part.sum(1) + length
        return Output(score, {"soft tf": part, "length": length, "similarity": similarity})
