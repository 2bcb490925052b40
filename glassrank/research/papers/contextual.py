"""TK's small transformer: word vectors that know their neighbours.

S. Hofstätter et al., ECAI 2020. Its authors run AllenNLP's stacked self-attention, which differs
from the usual block: the feed-forward layer comes first, has a residual and a norm of its own, and
the norm divides by the standard deviation plus epsilon.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassrank.backends.attention import NEVER
from glassrank.models.late_interaction import ContextualConfig, sinusoidal_positions

_FUSED_SIZES = 8
"""A head's size on a GPU is a multiple of this, or attention forms each head's (L, L) shares."""


def positions(like: Tensor) -> Tensor:
    """Sinusoids (L, E) for vectors (B, L, E), in their type and where they are."""
    length, size = like.shape[1:]
    longest = 1 << max(0, length - 1).bit_length()
    key = longest, size, like.device, like.dtype
    if key not in _POSITIONS:
        with torch.inference_mode(False):  # made while ranking, they may be used in training
            _POSITIONS[key] = torch.from_numpy(sinusoidal_positions(longest, size)).to(
                like.device, like.dtype
            )
    return _POSITIONS[key][:length]


_POSITIONS: dict[tuple[int, int, torch.device, torch.dtype], Tensor] = {}
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
