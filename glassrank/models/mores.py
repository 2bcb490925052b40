"""MORES: a transformer ranker in three modules, so that documents are encoded beforehand.

L. Gao, Z. Dai, J. Callan, "Modularized Transfomer-based Ranking Framework", EMNLP 2020. The
document module and the query module never see each other's text; the interaction module is small.
What a store keeps of a document is either what its module gives (Reuse-S1) or also what each
interaction block makes of that, its keys and values (Reuse-S2): more space, less time, one score.

Three savings that the paper does not take change no score: one query is projected once for all
documents; of the last block only [CLS]'s row is computed; and where few rows ask, documents are
searched as they are, without a projection (see `nn/attention.py`).
"""

import copy
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from glassrank.errors import InputError
from glassrank.models.contract import Output, PieceText, TokenBatch, Words, WordTable
from glassrank.models.mores_interaction import Interaction, InteractionConfig
from glassrank.models.pieces import PieceRanker
from glassrank.models.pretrained import Pretrained
from glassrank.nn.transformer import Encoder, EncoderConfig, Layer, joined_maps

Start = Literal["copied", "random_cross", "random"]


@dataclass(frozen=True)
class MORESConfig:
    """The query module and the blocks are of one width, the document module may have another."""

    document: EncoderConfig = field(default_factory=EncoderConfig)
    query: EncoderConfig = field(default_factory=lambda: EncoderConfig(layers=10))
    blocks: int = 2
    """Of the interaction module: 1 to 4 in the paper, of which 2 is best."""
    tie_encoders: bool = False
    """Whether the query module's layers are the document module's first ones, as in the authors'
    code; in the paper each has its own. Embeddings are always two."""
    two_logits: bool = False
    """Whether the score is the difference of two numbers, as in the authors' code, or one number,
    as in the paper."""
    reuse: Literal["s1", "s2"] = "s1"
    """What `encode_doc` gives: the document module's output, or each block's keys and values."""
    text: PieceText = field(default_factory=PieceText)

    @classmethod
    def like(cls, bert: EncoderConfig, blocks: int = 2, **settings: object) -> "MORESConfig":
        """As the paper divides a BERT: all layers for documents, and for queries all but those
        that become blocks."""
        if not 0 < blocks <= bert.layers:
            raise InputError(f"blocks: expected 1 to {bert.layers}, found {blocks}")
        query = replace(bert, layers=bert.layers - blocks)
        return cls(document=bert, query=query, blocks=blocks, **settings)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        same = replace(self.document, layers=self.query.layers) == self.query
        if self.tie_encoders and not (same and self.query.layers <= self.document.layers):
            raise InputError(
                "tie_encoders: the query module must be as the document module, and not deeper"
            )

    @property
    def interaction(self) -> InteractionConfig:
        return InteractionConfig(self.query, self.document.size, self.blocks, self.two_logits)


class MORES(PieceRanker):
    name = "mores"
    config_type = MORESConfig
    stores_words = True
    encoders = ("document", "query")
    modular = True

    def __init__(self, config: MORESConfig, words: WordTable | None = None) -> None:
        super().__init__(config, words)
        self.document = Encoder(config.document)
        own_layers = 0 if config.tie_encoders else config.query.layers
        self.query = Encoder(replace(config.query, layers=own_layers))
        self.interaction = Interaction(config.interaction)

    @classmethod
    def start(
        cls,
        bert: Pretrained,
        blocks: int = 2,
        interaction: Start = "copied",
        **settings: object,
    ) -> "MORES":
        """Section 3.3: one copy of a BERT for documents, another one divided between queries and
        interaction, whose attention to the document begins as self-attention does. The last, or
        all of the interaction, may also begin at random, to see what that is worth (Table 3)."""
        given = {"text": PieceText(lowercase=bert.lowercase), **settings}
        model = cls(MORESConfig.like(bert.config, blocks, **given))
        model.document.load_state_dict(bert.encoder_weights())
        model.query.load_state_dict(bert.encoder_weights(len(model.query.layers)))
        if interaction != "random":
            last = model.document.stack()[-blocks:]
            for block, layer in zip(model.interaction.stack(), last, strict=True):
                block.copy_layer(layer, cross=interaction == "copied")
        return model

    def encode_query(self, batch: TokenBatch) -> Words:
        return _encoded(self.query, batch, self.query_layers())

    def query_layers(self) -> list[Layer]:
        """The document module's first ones, where encoders are tied."""
        if self.config.tie_encoders:
            return self.document.stack()[: self.config.query.layers]
        return self.query.stack()

    def encode_doc(self, batch: TokenBatch) -> Words:
        states = _encoded(self.document, batch, self.document.stack())
        return self.project(states) if self.config.reuse == "s2" else states

    def reusing(self, reuse: str) -> "MORES":
        """The same weights, with an `encode_doc` that gives S1 or S2."""
        if reuse not in ("s1", "s2"):
            raise InputError(f"reuse: expected s1 or s2, found {reuse!r}")
        same = copy.copy(self)
        same.config = replace(self.config, reuse=reuse)
        return same

    def project(self, doc: Words) -> Words:
        """From S1 to S2: (B, D, X) to (B, D, blocks, 2, H)."""
        vectors = doc.vectors.to(self.interaction.head.weight)
        return doc._replace(vectors=self.interaction.project(vectors))

    def interact(self, query: Words, doc: Words, explain: bool = False) -> Output:
        out: Output = self.interaction(query, doc, explain)
        return out

    def explain(self, query: TokenBatch, doc: TokenBatch) -> Output:
        """All attention there is: of query and document to themselves, of the query to the
        document in each block, and of the query's rows to each other after that."""
        query_maps: list[Tensor] = []
        doc_maps: list[Tensor] = []
        encoded_query = _encoded(self.query, query, self.query_layers(), query_maps)
        encoded_doc = _encoded(self.document, doc, self.document.stack(), doc_maps)
        out = self.interact(encoded_query, encoded_doc, explain=True)
        maps = {"query_attention": query_maps, "doc_attention": doc_maps}
        own = {name: joined_maps(found) for name, found in maps.items() if found}
        return Output(out.score, {**out.parts, **own})


def _encoded(
    module: Encoder, batch: TokenBatch, layers: list[Layer], maps: list[Tensor] | None = None
) -> Words:
    """Where the module is: the three may be on different devices."""
    ids = batch.ids.to(module.embeddings.pieces.weight.device)
    return Words(module(ids, batch.mask, maps, layers), batch.mask, batch.mask)
