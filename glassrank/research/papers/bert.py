"""BERT[CLS], a cross-encoder: query and document as one text, scored from its first subword.

R. Nogueira, K. Cho, "Passage Re-ranking with BERT", 2019, as the TK paper runs it: the pooled
vector of [CLS] and one linear layer. Nothing can be encoded before the query: an encoded text is
the ids of its subwords, one column of integers instead of vectors.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.configs import EncoderConfig
from glassrank.backends.transformer import Encoder, init_bert, run_layers, stack_maps
from glassrank.errors import InputError
from glassrank.models.model import ModelInfo, Output, SubwordText, TokenBatch, TokenEmbeddings
from glassrank.models.pretrained import Pretrained
from glassrank.models.torch_models import EmbeddingTable, SubwordRanker


@dataclass(frozen=True)
class BERTConfig:
    """A BERT, and how texts become its subwords."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    text: SubwordText = field(default_factory=SubwordText)
    pooler: bool = True
    """Whether a layer and a tanh stand between [CLS]'s vector and the score, as BERT is trained."""

    def __post_init__(self) -> None:
        if self.encoder.layers < 1:
            raise InputError(f"layers: a BERT needs one or more, found {self.encoder.layers}")


class Pair(NamedTuple):
    """[CLS] query [SEP] document [SEP]; padding may stand between the two and is not attended to.
    Positions count on over it, as if it were not there."""

    ids: Tensor  # (B, L)
    mask: Tensor  # (B, L)
    positions: Tensor  # (B, L)
    types: Tensor  # (B, L); 1 in the document
    cut: Tensor  # (B,) subwords for which there is no position


class BERT(SubwordRanker):
    """One linear layer over [CLS] of query and document as one text."""

    info = ModelInfo(
        "bert",
        BERTConfig,
        uses_subwords=True,
        interacts_in_bfloat16=True,
        uses_intra_op_threads=True,
        is_cross_encoder=True,
        encoders=("encoder",),
    )

    def __init__(self, config: BERTConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        size = config.encoder.size
        self.encoder = Encoder(config.encoder)
        self.pooler = nn.Linear(size, size) if config.pooler else None
        self.score = nn.Linear(size, 1)
        for fresh in (self.pooler, self.score):
            if fresh is not None:
                init_bert(fresh)

    @classmethod
    def start(cls, bert: Pretrained, **settings: object) -> "BERT":
        """With the weights of a pretrained BERT; only the last layer is new."""
        text = SubwordText(lowercase=bert.lowercase)
        given = {"text": text, "pooler": "pooler.weight" in bert.weights, **settings}
        model = cls(BERTConfig(bert.config, **given))  # type: ignore[arg-type]
        model.encoder.load_state_dict(bert.encoder_weights())
        if model.pooler is not None and "pooler.weight" in bert.weights:
            pooler = {name: bert.weights[f"pooler.{name}"] for name in ("weight", "bias")}
            model.pooler.load_state_dict(pooler)
        return model

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        return TokenEmbeddings(batch.ids[..., None], batch.mask, batch.mask)

    def encode_doc(self, batch: TokenBatch) -> TokenEmbeddings:
        return self.encode_query(batch)

    def interact(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, explain: bool = False
    ) -> Output:
        """The part `cut` is the number of the document's last subwords that had no position."""
        pair = join_pair(query, doc, self.config.encoder.positions)
        x = self.encoder.embeddings(pair.ids, pair.positions, pair.types)  # (B, L, H)
        bias = self.encoder.bias(pair.mask, x)
        *before, last = self.encoder.stack()
        parts = {"cut": pair.cut}
        if explain:
            maps: list[Tensor] = []
            first = run_layers([*before, last], x, bias, maps)[:, 0]  # (B, H)
            parts |= {"attention": stack_maps(maps), "types": pair.types, "mask": pair.mask}
        else:  # no other row of the last layer is read
            first = last.first_row(run_layers(before, x, bias), bias)  # (B, H)
        if self.pooler is not None:
            first = self.pooler(first).tanh()
        weight, own_bias = self.score.weight.float(), self.score.bias.float()
        return Output(functional.linear(first.float(), weight, own_bias).squeeze(-1), parts)


def join_pair(query: TokenEmbeddings, doc: TokenEmbeddings, longest: int) -> Pair:
    """Joins texts that come with [CLS] and [SEP]; the document's [CLS] is left out. Subwords beyond
    `longest` are cut off at the end, as the TK paper's authors do."""
    batch = len(doc.mask)
    query_ids = query.vectors[..., 0].long().expand(batch, -1)  # (B, Q)
    doc_ids = doc.vectors[:, 1:, 0].long()  # (B, D - 1)
    query_mask, doc_mask = query.mask.expand(batch, -1), doc.mask[:, 1:]
    counted = torch.arange(query_ids.shape[1] + doc_ids.shape[1], device=doc_mask.device)
    query_places = counted[: query_ids.shape[1]].expand(batch, -1)  # (B, Q)
    before = query_mask.sum(1, keepdim=True).long()  # (B, 1)
    doc_places = before + counted[: doc_ids.shape[1]]  # (B, D - 1)
    places = torch.cat([query_places, doc_places], 1)  # (B, L)
    present = torch.cat([query_mask, doc_mask], 1)
    mask = present * (places < longest)
    return Pair(
        ids=torch.cat([query_ids, doc_ids], 1),
        mask=mask,
        positions=places.clamp(max=longest - 1).to(doc_ids.device),
        types=torch.cat([torch.zeros_like(query_ids), torch.ones_like(doc_ids)], 1),
        cut=(present - mask).sum(1),
    )
