"""MORES: a transformer ranker in three modules, so that documents are encoded beforehand.

L. Gao, Z. Dai, J. Callan, "Modularized Transfomer-based Ranking Framework", EMNLP 2020. The
document module and the query module never see each other's text; the interaction module is small.
What a store keeps of a document is either what its module gives (Reuse-S1) or also what each
interaction block makes of that, its keys and values (Reuse-S2): more space, less time, one score.

Three savings that the paper does not take change no score: one query is projected once for all
documents; of the last block only [CLS]'s row is computed; and where few rows ask, documents are
searched as they are, without a projection (see `backends/attention.py`).
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.attention import (
    attend,
    attend_unprojected,
    join_heads,
    make_key_bias,
    split_heads,
)
from glassrank.backends.configs import EncoderConfig
from glassrank.backends.transformer import Encoder, Layer, init_bert, stack_maps
from glassrank.errors import InputError
from glassrank.models.model import ModelInfo, Output, SubwordText, TokenBatch, TokenEmbeddings
from glassrank.models.pretrained import Pretrained
from glassrank.models.torch_models import EmbeddingTable, SubwordRanker

if TYPE_CHECKING:
    from glassrank.research.papers.gpu_mores import StoredMORES

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
    text: SubwordText = field(default_factory=SubwordText)

    @classmethod
    def like(cls, bert: EncoderConfig, blocks: int = 2, **settings: object) -> "MORESConfig":
        """As the paper divides a BERT: all layers for documents, and for queries all but those
        that become blocks."""
        if not 0 < blocks <= bert.layers:
            raise InputError(f"blocks: expected 1 to {bert.layers}, found {blocks}")
        query = replace(bert, layers=bert.layers - blocks)
        return cls(document=bert, query=query, blocks=blocks, **settings)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise InputError(f"blocks: expected 1 to 4, found {self.blocks}")
        if self.document.distances or self.query.distances:
            raise InputError(
                "distances: the interaction of MORES has none; start it from a BERT, not an MPNet"
            )
        same = replace(self.document, layers=self.query.layers) == self.query
        if self.tie_encoders and not (same and self.query.layers <= self.document.layers):
            raise InputError(
                "tie_encoders: the query module must be as the document module, and not deeper"
            )


class CrossAttention(nn.Module):
    """norm(x + attention of x to the document)."""

    def __init__(
        self, size: int, doc_size: int, heads: int, dropout: float, epsilon: float
    ) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(size, size)
        self.key_value = nn.Linear(doc_size, 2 * size)
        self.output = nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(size, eps=epsilon)

    def project(self, states: Tensor) -> Tensor:
        """Keys and values of a document's rows: (B, D, X) to (B, D, 2, H)."""
        return torch.unflatten(self.key_value(states), -1, (2, -1))

    def forward(
        self, x: Tensor, doc: Tensor, bias: Tensor | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """`x` is (B, Q, H), or (1, Q, H) for one query and all documents: its projection is then
        computed once. `doc` is (B, D, X) as encoded, or (B, D, 2, H) as projected."""
        query = split_heads(self.query(x), self.heads)  # (1 or B, heads, Q, A)
        dropped = self.dropout.p if self.training else 0.0
        if doc.dim() == 3 and maps is None and self._better_unprojected(x):
            value_bias = self.key_value.bias[x.shape[-1] :]
            attended = attend_unprojected(
                query, doc, self.key_value.weight, value_bias, bias, dropped
            )
        else:
            projected = doc if doc.dim() == 4 else self.project(doc)  # (B, D, 2, H)
            both = torch.unflatten(projected, -1, (self.heads, -1)).permute(2, 0, 3, 1, 4)
            key, value = both  # each (B, heads, D, A)
            attended = attend(query, key, value, bias, dropped, maps)
        joined = self.output(join_heads(attended))  # (B, Q, H)
        result: Tensor = self.norm(x + self.dropout(joined))
        return result

    def _better_unprojected(self, x: Tensor) -> bool:
        """A document row costs heads * Q * X multiplications each way, or H * X when projected.
        Learning keeps what lies in between, of which this way has more."""
        return self.heads * x.shape[1] < x.shape[2] and not torch.is_grad_enabled()


class InteractionBlock(nn.Module):
    """Attention to the document, and then a layer as BERT has it over the query's own rows."""

    def __init__(self, config: EncoderConfig, doc_size: int) -> None:
        super().__init__()
        self.cross = CrossAttention(
            config.size, doc_size, config.heads, config.dropout, config.epsilon
        )
        self.layer = Layer(config)

    def forward(
        self,
        x: Tensor,
        doc: Tensor,
        query_bias: Tensor | None,
        doc_bias: Tensor | None,
        cross_maps: list[Tensor] | None = None,
        own_maps: list[Tensor] | None = None,
    ) -> Tensor:
        """(1 or B, Q, H) to (B, Q, H)."""
        seen = self.cross(x, doc, doc_bias, cross_maps)
        result: Tensor = self.layer(seen, query_bias, own_maps)
        return result

    def first_row(
        self, x: Tensor, doc: Tensor, query_bias: Tensor | None, doc_bias: Tensor | None
    ) -> Tensor:
        """[CLS]'s row alone, (B, H). Before the rows look at each other, all are needed."""
        result: Tensor = self.layer.first_row(self.cross(x, doc, doc_bias), query_bias)
        return result

    def copy_layer(self, source: Layer, cross: bool = True) -> None:
        """The weights of a BERT layer; with `cross`, its self-attention is also how attention to
        the document begins."""
        self.layer.load_state_dict(source.state_dict())
        if not cross:
            return
        attention, size = source.attention, len(source.attention.output.weight)
        fused = attention.query_key_value
        with torch.no_grad():
            for target, rows in (
                (self.cross.query, slice(size)),
                (self.cross.key_value, slice(size, None)),
            ):
                target.weight.copy_(fused.weight[rows])
                target.bias.copy_(fused.bias[rows])
        self.cross.output.load_state_dict(attention.output.state_dict())
        self.cross.norm.load_state_dict(attention.norm.state_dict())


class Interaction(nn.Module):
    """Encoded query and document in, score out."""

    def __init__(self, config: MORESConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(
            InteractionBlock(config.query, config.document.size) for _ in range(config.blocks)
        )
        self.head = nn.Linear(config.query.size, 2 if config.two_logits else 1)
        init_bert(self)

    def project(self, states: Tensor) -> Tensor:
        """Each block's keys and values of a document: (B, D, X) to (B, D, blocks, 2, H)."""
        return torch.stack([block.cross.project(states) for block in self.stack()], 2)

    def forward(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, explain: bool = False
    ) -> Output:
        """Documents are (B, D, X) as encoded or (B, D, blocks, 2, H) as projected; there is one
        query for each, or one for all."""
        weight = self.head.weight
        x, vectors = query.vectors.to(weight), doc.vectors.to(weight)
        query_bias = make_key_bias(query.mask, weight)
        doc_bias = make_key_bias(doc.mask, weight)
        docs = [self._seen_by(number, vectors) for number in range(self.config.blocks)]
        cross_maps: list[Tensor] = []
        own_maps: list[Tensor] = []
        parts: dict[str, Tensor] = {}
        *before, last = self.stack()
        if explain:
            for block, seen in zip(self.stack(), docs, strict=True):
                x = block(x, seen, query_bias, doc_bias, cross_maps, own_maps)
            first = x[:, 0]  # (B, H)
            parts["cross_attention"] = stack_maps(cross_maps)  # (B, blocks, heads, Q, D)
            parts["interaction_attention"] = stack_maps(own_maps)  # (B, blocks, heads, Q, Q)
        else:
            for block, seen in zip(before, docs, strict=False):
                x = block(x, seen, query_bias, doc_bias)
            first = last.first_row(x, docs[-1], query_bias, doc_bias)  # (B, H)
        parts["logits"] = self.logits(first)
        return Output(self.to_score(parts["logits"]), parts)

    def logits(self, first: Tensor) -> Tensor:
        """[CLS]'s row (B, H) to (B, 1 or 2), in full precision: two documents may differ by less
        than a short float can say."""
        return functional.linear(first.float(), self.head.weight.float(), self.head.bias.float())

    def to_score(self, logits: Tensor) -> Tensor:
        """The one logit, or the second less the first: (B, 1 or 2) to (B,)."""
        return logits[:, 1] - logits[:, 0] if self.config.two_logits else logits[:, 0]

    def _seen_by(self, block: int, doc: Tensor) -> Tensor:
        if doc.dim() == 3:
            return doc  # (B, D, X)
        if doc.shape[2:] != (self.config.blocks, 2, self.config.query.size):
            raise InputError(
                f"documents projected for {self.config.blocks} blocks of size "
                f"{self.config.query.size} were expected, found shape {tuple(doc.shape)}; "
                "encode them with this model"
            )
        return doc[:, :, block]  # (B, D, 2, H)

    def stack(self) -> list[InteractionBlock]:
        """The blocks, in order."""
        return [block for block in self.blocks if isinstance(block, InteractionBlock)]


class MORES(SubwordRanker):
    """A document module, a query module, and blocks in which they meet."""

    info = ModelInfo(
        "mores",
        MORESConfig,
        uses_subwords=True,
        interacts_in_bfloat16=True,
        uses_intra_op_threads=True,
        stores_embeddings=True,
        encoders=("document", "query"),
        is_modular=True,
    )

    def __init__(self, config: MORESConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.document = Encoder(config.document)
        own_layers = 0 if config.tie_encoders else config.query.layers
        self.query = Encoder(replace(config.query, layers=own_layers))
        self.interaction = Interaction(config)

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
        given = {"text": SubwordText(lowercase=bert.lowercase), **settings}
        model = cls(MORESConfig.like(bert.config, blocks, **given))
        model.document.load_state_dict(bert.encoder_weights())
        model.query.load_state_dict(bert.encoder_weights(len(model.query.layers)))
        if interaction != "random":
            last = model.document.stack()[-blocks:]
            for block, layer in zip(model.interaction.stack(), last, strict=True):
                block.copy_layer(layer, cross=interaction == "copied")
        return model

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        return _encoded(self.query, batch, self.query_layers())

    def query_layers(self) -> list[Layer]:
        """The document module's first ones, where encoders are tied."""
        if self.config.tie_encoders:
            return self.document.stack()[: self.config.query.layers]
        return self.query.stack()

    def encode_doc(self, batch: TokenBatch) -> TokenEmbeddings:
        states = _encoded(self.document, batch, self.document.stack())
        return self.project(states) if self.config.reuse == "s2" else states

    def reusing(self, reuse: str) -> "MORES":
        """The same weights, with an `encode_doc` that gives S1 or S2."""
        if reuse not in ("s1", "s2"):
            raise InputError(f"reuse: expected s1 or s2, found {reuse!r}")
        same = copy.copy(self)
        same.config = replace(self.config, reuse=reuse)
        return same

    def project(self, doc: TokenEmbeddings) -> TokenEmbeddings:
        """From S1 to S2: (B, D, X) to (B, D, blocks, 2, H)."""
        vectors = doc.vectors.to(self.interaction.head.weight)
        return doc.with_vectors(self.interaction.project(vectors))

    def interact(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, explain: bool = False
    ) -> Output:
        out: Output = self.interaction(query, doc, explain)
        return out

    def gpu_query_encoder(self) -> Callable[[TokenBatch], TokenEmbeddings] | None:
        fast = self.gpu_interaction()
        return None if fast is None else fast.encode_query

    def gpu_interaction(self) -> "StoredMORES | None":
        if self.config.query.activation != "gelu":
            return None
        from glassrank.research.papers.gpu_mores import StoredMORES

        return StoredMORES(self)

    def explain(self, query: TokenBatch, doc: TokenBatch) -> Output:
        """All attention there is: of query and document to themselves, of the query to the
        document in each block, and of the query's rows to each other after that."""
        maps: dict[str, list[Tensor]] = {"query_attention": [], "doc_attention": []}
        encoded_query = _encoded(self.query, query, self.query_layers(), maps["query_attention"])
        encoded_doc = _encoded(self.document, doc, self.document.stack(), maps["doc_attention"])
        out = self.interact(encoded_query, encoded_doc, explain=True)
        attention = {name: stack_maps(layers) for name, layers in maps.items() if layers}
        return Output(out.score, {**out.parts, **attention})


def _encoded(
    module: Encoder, batch: TokenBatch, layers: list[Layer], maps: list[Tensor] | None = None
) -> TokenEmbeddings:
    """Where the module is: the three may be on different devices."""
    ids = batch.ids.to(module.embeddings.pieces.weight.device)
    return TokenEmbeddings(module(ids, batch.mask, maps, layers), batch.mask, batch.mask)
