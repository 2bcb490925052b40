"""Transformers, in plain PyTorch: BERT's encoder, ids to contextual vectors; and TK's small one,
words that know their neighbours.

J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding", NAACL 2019. Norms come after each residual, and the activation is the exact GELU.

MPNet's encoder is the same with one thing more: heads look at how far apart two pieces stand.
K. Song et al., "MPNet: Masked and Permuted Pre-training for Language Understanding", NeurIPS 2020.

TK's is that of Hofstätter et al., ECAI 2020. Its authors run AllenNLP's stacked self-attention,
which differs from the usual block: the feed-forward layer comes first, has a residual and a norm of
its own, and the norm divides by the standard deviation plus epsilon.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.attention import NEVER, SelfAttention, key_bias
from glassrank.backends.configs import (
    Activation,
    ContextualConfig,
    EncoderConfig,
    distance_kinds,
    waves,
)
from glassrank.errors import InputError

__all__ = [
    "Activation",
    "ContextualConfig",
    "ContextualLayer",
    "ContextualLayers",
    "Embeddings",
    "Encoder",
    "EncoderConfig",
    "FeedForward",
    "Layer",
    "Norm",
    "joined_maps",
    "positions",
    "start_as_bert",
    "through",
]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}

_FUSED_SIZES = 8
"""A head's size on a GPU is a multiple of this, or attention forms each head's (L, L) shares."""


class Embeddings(nn.Module):
    """What stands where: the sum of a piece's, a position's and a segment's vector, normalised."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pieces = nn.Embedding(config.vocabulary, config.size)
        self.positions = nn.Embedding(config.positions, config.size)
        self.types = nn.Embedding(config.types, config.size)
        self.norm = nn.LayerNorm(config.size, eps=config.epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, ids: Tensor, positions: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """(B, L) to (B, L, H). Positions count from 0 and all is one segment, unless told
        otherwise."""
        where = (
            self.positions.weight[: ids.shape[1]]
            if positions is None
            else self.positions(positions)
        )
        segment = self.types.weight[0] if types is None else self.types(types)
        result: Tensor = self.dropout(self.norm(self.pieces(ids) + segment + where))
        return result


class Distances(nn.Module):
    """What a head adds for the distance of two pieces, the same in all layers; which distances
    are of one kind, `distance_kinds` says."""

    kinds: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.longest = config.positions
        self.bias = nn.Embedding(config.distances, config.heads)
        kinds = torch.from_numpy(distance_kinds(self.longest, config.distances))
        self.register_buffer("kinds", kinds, persistent=False)  # (2 * longest - 1,)

    def forward(self, length: int) -> Tensor:
        """(1, heads, L, L)."""
        place = torch.arange(length, device=self.kinds.device)
        after = place - place[:, None]  # (L, L): how far behind it the other piece stands
        result: Tensor = self.bias(self.kinds[after + self.longest - 1]).permute(2, 0, 1)[None]
        return result


class FeedForward(nn.Module):
    """norm(x + two layers of it)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.size, config.feed_forward)
        self.outer = nn.Linear(config.feed_forward, config.size)
        self.dropout = nn.Dropout(config.dropout)
        self.norm = nn.LayerNorm(config.size, eps=config.epsilon)
        self.activation = _ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, H) to (B, L, H)."""
        inside = self.activation(self.inner(x))  # (B, L, F)
        result: Tensor = self.norm(x + self.dropout(self.outer(inside)))
        return result


class Layer(nn.Module):
    """Attention, then feed-forward."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(
            config.size, config.heads, config.dropout, config.epsilon, config.attention
        )
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, bias: Tensor | None, maps: list[Tensor] | None = None) -> Tensor:
        """(B, L, H) to (B, L, H); `bias` as `key_bias` gives it."""
        result: Tensor = self.feed_forward(self.attention(x, bias, maps))
        return result

    def first_row(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Only [CLS]'s row, (B, H): all that is read of a last layer."""
        result: Tensor = self.feed_forward(self.attention.first_row(x, bias))
        return result


class Encoder(nn.Module):
    """Embeddings and layers. `maps` collects each layer's attention, (B, heads, L, L)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.distances = Distances(config) if config.distances else None
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        start_as_bert(self)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor,
        maps: list[Tensor] | None = None,
        layers: Sequence[Layer] | None = None,
    ) -> Tensor:
        """One text in each row: (B, L) to (B, L, H). Another encoder's layers may stand in for its
        own."""
        if ids.shape[1] > self.config.positions:
            raise InputError(
                f"a text of {ids.shape[1]} pieces is longer than the {self.config.positions} that "
                "this model has positions for; cut it before it is encoded"
            )
        x: Tensor = self.embeddings(ids)
        stack = self.stack() if layers is None else layers
        return through(stack, x, self.bias(mask, x), maps)

    def bias(self, mask: Tensor, x: Tensor) -> Tensor | None:
        """What is added to scores of attention within texts (B, L): for padding, and distances."""
        bias = key_bias(mask, x)
        if self.distances is None:
            return bias
        by_distance: Tensor = self.distances(mask.shape[1]).to(x)
        return by_distance if bias is None else bias + by_distance

    def stack(self) -> list[Layer]:
        """The layers, first to last, with their type."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]


def through(
    layers: Sequence[Layer], x: Tensor, bias: Tensor | None, maps: list[Tensor] | None = None
) -> Tensor:
    """One layer after another."""
    for layer in layers:
        x = layer(x, bias, maps)
    return x


def start_as_bert(module: nn.Module) -> None:
    """Fresh weights as BERT's are drawn: normal and small, no bias, norms that change nothing."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)


def joined_maps(maps: list[Tensor]) -> Tensor:
    """One tensor of all layers' attention: (B, layers, heads, Q, L)."""
    return torch.stack(maps, 1)


def positions(like: Tensor) -> Tensor:
    """Sinusoids (L, E) for vectors (B, L, E), in their type and where they are."""
    length, size = like.shape[1:]
    longest = 1 << max(0, length - 1).bit_length()
    key = longest, size, like.device, like.dtype
    if key not in _WAVES:
        with torch.inference_mode(False):  # made while ranking, they may be used in training
            _WAVES[key] = torch.from_numpy(waves(longest, size)).to(like.device, like.dtype)
    return _WAVES[key][:length]


_WAVES: dict[tuple[int, int, torch.device, torch.dtype], Tensor] = {}
"""For a few lengths, powers of two; what was recorded with them may need them for ever."""


class Norm(nn.Module):
    """gain (x - mean) / (deviation + epsilon) + bias: epsilon is not inside the root."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """Over the last axis."""
        centred = x - x.mean(-1, keepdim=True)
        deviation = centred.pow(2).mean(-1, keepdim=True).sqrt()
        return self.gain * centred / (deviation + 1e-6) + self.bias


class ContextualLayer(nn.Module):
    """h = norm(FF(x) + x); out = norm(attention(h) + h)."""

    def __init__(self, size: int, config: ContextualConfig) -> None:
        super().__init__()
        self.heads, total = config.heads, config.total
        self.scale = config.scale(size)
        self.feed_forward = nn.Sequential(
            nn.Linear(size, config.feed_forward), nn.ReLU(), nn.Linear(config.feed_forward, size)
        )
        self.feed_forward_norm = Norm(size)
        self.query_key_value = nn.Linear(size, 3 * total)
        self.output = nn.Linear(total, size)
        self.attention_norm = Norm(size)

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        """(B, L, E) to (B, L, E); `allowed` is added to scores: nobody attends to padding."""
        h = self.feed_forward_norm(self.feed_forward(x) + x)  # (B, L, E)
        split = self.query_key_value(h).unflatten(-1, (3, self.heads, -1))  # (B, L, 3, H, A)
        size = split.shape[-1]
        if split.is_cuda:  # zeros change no product, and its fused attention takes such sizes alone
            split = functional.pad(split, (0, -size % _FUSED_SIZES))
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (B, H, L, A)
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, scale=self.scale
        )[..., :size]  # (B, H, L, A)
        joined = attended.transpose(1, 2).flatten(2)  # (B, L, H * A)
        result: Tensor = self.attention_norm(self.output(joined) + h)
        return result


class ContextualLayers(nn.Module):
    """Word vectors (B, L, E) to contextual ones, mixed with the words themselves."""

    def __init__(self, size: int, config: ContextualConfig) -> None:
        super().__init__()
        self.size, self.config = size, config
        self.layers = nn.ModuleList(ContextualLayer(size, config) for _ in range(config.layers))
        self.mix = nn.Parameter(torch.tensor(0.5))

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(B, L, E) and a mask (B, L) to (B, L, E), zeros where padding stands."""
        words = vectors * mask[..., None]  # (B, L, E)
        context = words + positions(words)
        allowed = ((1 - mask) * NEVER)[:, None, None, :].to(words.dtype)  # (B, 1, 1, L)
        for layer in self.layers:
            context = layer(context, allowed)
        return (self.mix * words + (1 - self.mix) * context) * mask[..., None]
