"""The small transformer of TK: words that know their neighbours.

Hofstätter et al., ECAI 2020. Its authors run AllenNLP's stacked self-attention, which differs from
the usual block: the feed-forward layer comes first, has a residual and a norm of its own, and the
norm divides by the standard deviation plus epsilon.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.nn.attention import NEVER


@dataclass(frozen=True)
class ContextualConfig:
    """How many layers and heads, and how wide."""

    layers: int = 2
    heads: int = 16
    attention_size: int = 32
    per_head: bool = False
    """Whether `attention_size` is each head's, as the paper reads, or all heads' together, as the
    authors' code has it."""
    feed_forward: int = 100


def positions(like: Tensor) -> Tensor:
    """Sinusoids (L, E) for vectors (B, L, E), in their type and where they are."""
    length, size = like.shape[1:]
    longest = 1 << max(0, length - 1).bit_length()
    return _waves(longest, size, like.device, like.dtype)[:length]


@cache  # for a few lengths, powers of two; what was recorded with them may need them for ever
def _waves(length: int, size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Sines in the first half of the channels, cosines in the second."""
    half = size // 2
    steps = math.log(1e4) / max(half - 1, 1)  # so that the slowest has a time scale of 10,000
    with torch.inference_mode(False):  # made while ranking, they may be used in training
        scales = torch.exp(torch.arange(half, device=device) * -steps)  # (E/2,)
        angles = torch.arange(length, device=device)[:, None] * scales  # (L, E/2)
        waves = torch.cat([angles.sin(), angles.cos()], 1)  # (L, E or E - 1)
        return functional.pad(waves, (0, size % 2)).to(dtype)


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


class Layer(nn.Module):
    """h = norm(FF(x) + x); out = norm(attention(h) + h)."""

    def __init__(self, size: int, config: ContextualConfig) -> None:
        super().__init__()
        self.heads = config.heads
        total = config.attention_size * (config.heads if config.per_head else 1)
        if total % config.heads:
            raise ValueError(f"attention of size {total} cannot be cut into {config.heads} heads")
        # The authors scale by the width a head would have of the input, not by its own.
        head_size = total // config.heads if config.per_head else size // config.heads
        self.scale = 1 / math.sqrt(head_size)
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
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (B, H, L, A)
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, scale=self.scale
        )  # (B, H, L, A)
        joined = attended.transpose(1, 2).flatten(2)  # (B, L, H * A)
        result: Tensor = self.attention_norm(self.output(joined) + h)
        return result


class ContextualLayers(nn.Module):
    """Word vectors (B, L, E) to contextual ones, mixed with the words themselves."""

    def __init__(self, size: int, config: ContextualConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(size, config) for _ in range(config.layers))
        self.mix = nn.Parameter(torch.tensor(0.5))

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(B, L, E) and a mask (B, L) to (B, L, E), zeros where padding stands."""
        words = vectors * mask[..., None]  # (B, L, E)
        context = words + positions(words)
        allowed = ((1 - mask) * NEVER)[:, None, None, :].to(words.dtype)  # (B, 1, 1, L)
        for layer in self.layers:
            context = layer(context, allowed)
        return (self.mix * words + (1 - self.mix) * context) * mask[..., None]
