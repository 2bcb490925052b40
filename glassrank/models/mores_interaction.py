"""The interaction module of MORES: query rows look at the document, then at each other.

L. Gao, Z. Dai, J. Callan, "Modularized Transfomer-based Ranking Framework", EMNLP 2020, equations
5 to 10. The document never changes here, so all that a block needs of it, keys and values, can be
computed beforehand.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.errors import InputError
from glassrank.models.contract import Output, Words
from glassrank.nn.attention import CrossAttention, key_bias
from glassrank.nn.transformer import EncoderConfig, Layer, joined_maps, start_as_bert


@dataclass(frozen=True)
class InteractionConfig:
    """`layer` describes the blocks and is as wide as the query; its depth does not matter."""

    layer: EncoderConfig = field(default_factory=EncoderConfig)
    doc_size: int = 768
    blocks: int = 2
    two_logits: bool = False

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise InputError(f"blocks: expected 1 to 4, found {self.blocks}")


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
            for own, rows in (
                (self.cross.query, slice(size)),
                (self.cross.key_value, slice(size, None)),
            ):
                own.weight.copy_(fused.weight[rows])
                own.bias.copy_(fused.bias[rows])
        self.cross.output.load_state_dict(attention.output.state_dict())
        self.cross.norm.load_state_dict(attention.norm.state_dict())


class Interaction(nn.Module):
    """Encoded query and document in, score out."""

    def __init__(self, config: InteractionConfig) -> None:
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(
            InteractionBlock(config.layer, config.doc_size) for _ in range(config.blocks)
        )
        self.head = nn.Linear(config.layer.size, 2 if config.two_logits else 1)
        start_as_bert(self)

    def project(self, states: Tensor) -> Tensor:
        """Each block's keys and values of a document: (B, D, X) to (B, D, blocks, 2, H)."""
        return torch.stack([block.cross.project(states) for block in self.stack()], 2)

    def forward(self, query: Words, doc: Words, explain: bool = False) -> Output:
        """Documents are (B, D, X) as encoded or (B, D, blocks, 2, H) as projected; there is one
        query for each, or one for all."""
        weight = self.head.weight
        x, vectors = query.vectors.to(weight), doc.vectors.to(weight)
        query_bias = key_bias(query.mask, weight)
        doc_bias = key_bias(doc.mask, weight)
        docs = [self._seen_by(number, vectors) for number in range(self.config.blocks)]
        cross_maps: list[Tensor] = []
        own_maps: list[Tensor] = []
        *before, last = self.stack()
        if explain:
            for block, own in zip(self.stack(), docs, strict=True):
                x = block(x, own, query_bias, doc_bias, cross_maps, own_maps)
            first = x[:, 0]  # (B, H)
        else:
            for block, own in zip(before, docs, strict=False):
                x = block(x, own, query_bias, doc_bias)
            first = last.first_row(x, docs[-1], query_bias, doc_bias)  # (B, H)
        # In full precision: two documents may differ by less than a short float can say.
        logits = functional.linear(first.float(), weight.float(), self.head.bias.float())
        score = logits[:, 1] - logits[:, 0] if self.config.two_logits else logits[:, 0]
        parts = {"logits": logits}
        if explain:
            parts["cross_attention"] = joined_maps(cross_maps)  # (B, blocks, heads, Q, D)
            parts["interaction_attention"] = joined_maps(own_maps)  # (B, blocks, heads, Q, Q)
        return Output(score, parts)

    def _seen_by(self, block: int, doc: Tensor) -> Tensor:
        if doc.dim() == 3:
            return doc  # (B, D, X)
        if doc.shape[2:] != (self.config.blocks, 2, self.config.layer.size):
            raise InputError(
                f"documents projected for {self.config.blocks} blocks of size "
                f"{self.config.layer.size} were expected, found shape {tuple(doc.shape)}; "
                "encode them with this model"
            )
        return doc[:, :, block]  # (B, D, 2, H)

    def stack(self) -> list[InteractionBlock]:
        return [block for block in self.blocks if isinstance(block, InteractionBlock)]
