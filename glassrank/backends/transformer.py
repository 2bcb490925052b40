"""BERT's encoder in plain PyTorch (J. Devlin et al., "BERT", NAACL 2019): ids to contextual
vectors.

MPNet adds a bias for the relative position of two subwords (K. Song et al., "MPNet: Masked and
Permuted Pre-training for Language Understanding", NeurIPS 2020).
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.attention import SelfAttention, make_key_bias
from glassrank.backends.configs import EncoderConfig, relative_position_buckets
from glassrank.errors import InputError

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class Embeddings(nn.Module):
    """The sum of a subword's, a position's and a segment's vector, normalised."""

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
        """(B, L) to (B, L, H). By default positions count from 0 and all is one segment."""
        own = self.positions.weight
        where = own[: ids.shape[1]] if positions is None else self.positions(positions)
        segment = self.types.weight[0] if types is None else self.types(types)
        result: Tensor = self.dropout(self.norm(self.pieces(ids) + segment + where))
        return result


class RelativePositions(nn.Module):
    """What heads add by `relative_position_buckets`, the same in all layers."""

    kinds: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.longest = config.positions
        self.bias = nn.Embedding(config.distances, config.heads)
        kinds = torch.from_numpy(relative_position_buckets(self.longest, config.distances))
        self.register_buffer("kinds", kinds, persistent=False)  # (2 * longest - 1,)

    def forward(self, length: int) -> Tensor:
        """(1, heads, L, L)."""
        place = torch.arange(length, device=self.kinds.device)
        after = place - place[:, None]  # (L, L)
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
        """(B, L, H) to (B, L, H); `bias` as `make_key_bias` gives it."""
        result: Tensor = self.feed_forward(self.attention(x, bias, maps))
        return result

    def first_row(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Computes only [CLS]'s row, (B, H): nothing else is read of a last layer."""
        result: Tensor = self.feed_forward(self.attention.first_row(x, bias))
        return result


class Encoder(nn.Module):
    """Embeddings and layers. `maps` collects each layer's attention, (B, heads, L, L)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.distances = RelativePositions(config) if config.distances else None
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        init_bert(self)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor,
        maps: list[Tensor] | None = None,
        layers: Sequence[Layer] | None = None,
    ) -> Tensor:
        """(B, L) to (B, L, H), by its own layers or those of another encoder."""
        if ids.shape[1] > self.config.positions:
            raise InputError(
                f"a text of {ids.shape[1]} subwords is longer than the {self.config.positions} "
                "positions of this model; cut it before it is encoded"
            )
        x: Tensor = self.embeddings(ids)
        stack = self.stack() if layers is None else layers
        return run_layers(stack, x, self.bias(mask, x), maps)

    def bias(self, mask: Tensor, x: Tensor) -> Tensor | None:
        """What is added to scores of attention for padding and relative positions."""
        bias = make_key_bias(mask, x)
        if self.distances is None:
            return bias
        by_distance: Tensor = self.distances(mask.shape[1]).to(x)
        return by_distance if bias is None else bias + by_distance

    def stack(self) -> list[Layer]:
        """The layers, with their type."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]


def run_layers(
    layers: Sequence[Layer], x: Tensor, bias: Tensor | None, maps: list[Tensor] | None = None
) -> Tensor:
    """Runs one layer after another."""
    for layer in layers:
        x = layer(x, bias, maps)
    return x


def init_bert(module: nn.Module) -> None:
    """Initialises weights as BERT does: normal and small, no bias, norms that change nothing."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)


def stack_maps(maps: list[Tensor]) -> Tensor:
    """One tensor of all layers' attention: (B, layers, heads, Q, L)."""
    return torch.stack(maps, 1)
