"""Late interaction and single vectors: a pretrained encoder reads query and document apart.

`MaxSim` is O. Khattab, M. Zaharia, "ColBERT", SIGIR 2020, with a learned weight for each query
subword. `KernelBERT` has TK's kernel pooling; its kernels count subwords that are *at least* so
similar, and no weight is negative: a closer match never counts against a text. `SingleVector` is
N. Reimers, I. Gurevych, "Sentence-BERT", EMNLP 2019, with a sentence transformer's weights.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from glassrank.backends.configs import FLOOR, EncoderConfig, ScoringHead
from glassrank.backends.match import (
    KernelBank,
    kernel_pool,
    match_matrix,
    non_negative,
    pair_mask,
    unit,
)
from glassrank.backends.transformer import Encoder
from glassrank.models.late_interaction import (
    KERNEL_BERT,
    MAXSIM,
    KernelBERTConfig,
    LateInteractionConfig,
)
from glassrank.models.model import ModelInfo, Output, SubwordText, TokenBatch, TokenEmbeddings
from glassrank.models.pretrained import Pretrained
from glassrank.models.published_files import Pooling
from glassrank.models.torch_models import EmbeddingTable, SubwordRanker


class LateInteraction(SubwordRanker):
    """Subclasses define `interact`. A query subword's weight, between 0 and 2, comes from its own
    vector and stands in the place of its idf."""

    def __init__(self, config: Any, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.encoder = Encoder(config.encoder)
        self.projection = nn.Linear(config.encoder.size, config.size, bias=False)
        self.term_weight = nn.Linear(config.encoder.size, 1)
        nn.init.orthogonal_(self.projection.weight)  # similarities begin as the encoder has them
        nn.init.zeros_(self.term_weight.weight)  # and every subword counts 1
        nn.init.zeros_(self.term_weight.bias)

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        states = self.encoder(batch.ids, batch.mask)  # (B, Q, H)
        return TokenEmbeddings(self.vectors(states), batch.mask, self.weights(states) * batch.mask)

    def encode_doc(self, batch: TokenBatch) -> TokenEmbeddings:
        states = self.encoder(batch.ids, batch.mask)  # (B, D, H)
        return TokenEmbeddings(self.vectors(states), batch.mask, batch.mask)

    def vectors(self, states: Tensor) -> Tensor:
        """Unit vectors (B, L, E) in float32, whatever the encoder computes in."""
        projected: Tensor = self.projection(states.to(self.projection.weight))
        return unit(projected.float())

    def weights(self, states: Tensor) -> Tensor:
        """Of query subwords: (B, Q)."""
        logits = self.term_weight(states.to(self.term_weight.weight)).squeeze(-1)
        return 2 * torch.sigmoid(logits.float())

    @torch.no_grad()
    def fit_statistics(self, docs: Iterable[TokenBatch]) -> None:
        """Initialises the projection with the principal directions of the states."""
        size = self.config.encoder.size
        moment = self.projection.weight.new_zeros(size, size, dtype=torch.float64)  # (H, H)
        for batch in docs:
            states = unit(self.encoder(batch.ids, batch.mask).float())[batch.mask > 0]  # (T, H)
            moment += (states.T @ states).double()
        if moment.any():
            directions = torch.linalg.eigh(moment).eigenvectors.T.flip(0)  # (H, H), longest first
            kept = min(size, self.config.size)
            self.projection.weight.zero_()[:kept] = directions[:kept]

    def for_gpu(self) -> Self:
        """Only the encoder in bfloat16: kernels see the last bits of a similarity."""
        return self.with_modules(encoder=copy.deepcopy(self.encoder).to(torch.bfloat16))

    def gpu_query_encoder(self) -> Callable[[TokenBatch], TokenEmbeddings] | None:
        from glassrank.backends.gpu.query_layers import QueryEmbedder, is_foldable

        if not is_foldable(self.encoder):
            return None
        embed = QueryEmbedder(self.encoder, self.projection, self.term_weight)

        def encode(batch: TokenBatch) -> TokenEmbeddings:
            vectors, weights = embed(batch.ids, batch.mask)
            return TokenEmbeddings(vectors, batch.mask, weights)

        return encode

    @classmethod
    def start(cls, bert: Pretrained, **settings: object) -> Self:
        """With the weights of a pretrained encoder; projection and term weights are new."""
        given = {"text": SubwordText(lowercase=bert.lowercase), **settings}
        model = cls(cls.info.config_type(bert.config, **given))
        model.encoder.load_state_dict(bert.encoder_weights())
        return model


def sum_paths(
    similarity: Tensor, signals: tuple[Tensor, Tensor], weights: tuple[Tensor, Tensor]
) -> Output:
    """The score as the sum of both paths: signals (B, Q, K) times the weights (K,) of kernels."""
    log, length = (weight * signal for weight, signal in zip(weights, signals, strict=True))
    parts = {"log": log, "length": length, "log_signal": signals[0], "length_signal": signals[1]}
    return Output(log.sum((1, 2)) + length.sum((1, 2)), {**parts, "similarity": similarity})


class MaxSim(LateInteraction):
    """Each query subword counts as much as the document subword most like it."""

    info = MAXSIM

    def __init__(self, config: LateInteractionConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.scale = nn.Parameter(torch.tensor(1.0))  # its exponential: cosines are small numbers

    def interact(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, explain: bool = False
    ) -> Output:
        masks = query.mask.float().expand(len(doc.mask), -1), doc.mask.float()
        similarity = match_matrix(query.vectors.float(), doc.vectors.float(), *masks)  # (B, Q, D)
        # Padding, or a document without subwords, is as far away as can be.
        best = similarity.masked_fill(pair_mask(*masks) == 0, -1.0).amax(2)  # (B, Q)
        part = self.scale.exp() * query.idf.float() * best * masks[0]  # (B, Q)
        return Output(part.sum(1), {"best match": part, "similarity": similarity})


class KernelBERT(LateInteraction):
    """Kernels that count subwords of at least some similarity."""

    info = KERNEL_BERT

    def __init__(self, config: KernelBERTConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.kernels = KernelBank(config.kernels)
        # Small, and just above zero where they may not be negative.
        log, length = (-5.0, -3.0) if config.monotone else (0.01, 0.05)
        self.log_weights = nn.Parameter(torch.full((len(config.kernels),), log))  # (K,)
        self.length_weights = nn.Parameter(torch.full((len(config.kernels),), length))  # (K,)

    def interact(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, explain: bool = False
    ) -> Output:
        masks = query.mask.float().expand(len(doc.mask), -1), doc.mask.float()  # (B, Q), (B, D)
        similarity = match_matrix(query.vectors.float(), doc.vectors.float(), *masks)  # (B, Q, D)
        counts = kernel_pool(similarity, *masks, self.kernels)  # (B, Q, K)
        length = masks[1].sum(-1)[:, None, None] + 1  # (B, 1, 1)
        weight = query.idf.float()[..., None]  # (B or 1, Q, 1)
        (head,) = self.scoring_heads()
        signals = counts.clamp(min=FLOOR).log() * weight, counts / length * weight  # (B, Q, K)
        return sum_paths(similarity, signals, (head.log, head.length))

    def scoring_heads(self) -> list[ScoringHead]:
        if not self.config.monotone:
            return [ScoringHead(self.log_weights, self.length_weights)]
        return [ScoringHead(non_negative(self.log_weights), non_negative(self.length_weights))]


@dataclass(frozen=True)
class SingleVectorConfig:
    """The encoder, and how texts become its subwords."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    text: SubwordText = field(default_factory=SubwordText)
    pooling: Pooling = "mean"


class SingleVector(SubwordRanker):
    """The cosine of two vectors, scaled."""

    info = ModelInfo(
        "single_vector",
        SingleVectorConfig,
        uses_subwords=True,
        stores_embeddings=True,
        single_vector=True,
        encoders=("encoder",),
    )

    def __init__(self, config: SingleVectorConfig, words: EmbeddingTable | None = None) -> None:
        super().__init__(config, words)
        self.encoder = Encoder(config.encoder)
        self.scale = nn.Parameter(torch.tensor(3.0))  # its exponential: cosines are small numbers

    def encode_query(self, batch: TokenBatch) -> TokenEmbeddings:
        """(B, 1, H): the text as one token."""
        states = self.encoder(batch.ids, batch.mask).float()  # (B, L, H)
        mask = batch.mask[..., None]
        if self.config.pooling == "cls":
            pooled = states[:, 0]  # (B, H)
        else:
            pooled = (states * mask).sum(1) / mask.sum(1).clamp(min=1)
        has_words = batch.mask.amax(1, keepdim=True)  # (B, 1)
        return TokenEmbeddings(unit(pooled)[:, None], has_words, has_words)

    def encode_doc(self, batch: TokenBatch) -> TokenEmbeddings:
        return self.encode_query(batch)

    def interact(
        self, query: TokenEmbeddings, doc: TokenEmbeddings, explain: bool = False
    ) -> Output:
        cosine = (query.vectors.float() * doc.vectors.float()).sum((1, 2))  # (B,)
        return Output(self.scale.exp() * cosine, {"similarity": cosine[:, None, None]})

    @classmethod
    def start(cls, bert: Pretrained, **settings: object) -> Self:
        config = SingleVectorConfig(bert.config, SubwordText(lowercase=bert.lowercase))
        model = cls(replace(config, **settings))  # type: ignore[arg-type]
        model.encoder.load_state_dict(bert.encoder_weights())
        return model
