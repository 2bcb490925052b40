"""Settings of the encoders, and the waves that tell places apart: all that is known of them without
their weights."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError

Activation = Literal["gelu", "gelu_tanh", "relu"]


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

    @property
    def total(self) -> int:
        """Channels of all heads."""
        total = self.attention_size * (self.heads if self.per_head else 1)
        if total % self.heads:
            raise ValueError(f"attention of size {total} cannot be cut into {self.heads} heads")
        return total

    def scale(self, size: int) -> float:
        """Of scores. The authors scale by the width a head would have of the input, not by its
        own."""
        head_size = self.total // self.heads if self.per_head else size // self.heads
        return 1 / math.sqrt(head_size)


@dataclass(frozen=True)
class EncoderConfig:
    """As large as BERT-base unless told otherwise."""

    vocabulary: int = field(default=30_522, metadata={"largest": 1 << 22})
    size: int = 768
    layers: int = 12
    heads: int = 12
    feed_forward: int = 3072
    positions: int = 512
    """The longest text, in pieces."""
    types: int = 2
    dropout: float = 0.1
    epsilon: float = 1e-12
    activation: Activation = "gelu"
    distances: int = 0
    """How many kinds of distance between two pieces a head tells apart; a BERT's tells none."""

    def __post_init__(self) -> None:
        if self.heads < 1 or self.size % self.heads:
            raise InputError(
                f"heads: {self.heads} heads cannot share a size of {self.size}; "
                "choose numbers that divide"
            )
        for name in ("dropout", "epsilon"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InputError(f"{name}: expected a number from 0 to 1, found {value}")


def distance_kinds(longest: int, kinds: int) -> NDArray[np.int64]:
    """Of two pieces in a text of up to `longest`, by where the one that is looked at stands: from
    as far before as can be to as far after, (2 * longest - 1,). Half of the kinds are for pieces
    that come later; half of those for small distances, one for each, and the rest for larger ones
    by their logarithm, up to 128."""
    after = np.arange(1 - longest, longest)
    far, side = np.abs(after), kinds // 2
    near = side // 2
    steps = np.log(np.maximum(far, 1) / np.float32(near), dtype=np.float32)
    steps *= np.float32((side - near) / math.log(128 / near))
    kind = np.where(far < near, far, np.minimum(near + steps.astype(np.int64), side - 1))
    return np.asarray(kind + side * (after > 0), np.int64)


def waves(length: int, size: int) -> NDArray[np.float32]:
    """Of TK's places, (L, E): sines in the first half of the channels, cosines in the second."""
    half = size // 2
    steps = math.log(1e4) / max(half - 1, 1)  # so that the slowest has a time scale of 10,000
    scales = np.exp(np.arange(half, dtype=np.float32) * np.float32(-steps))  # (E/2,)
    angles = np.arange(length, dtype=np.float32)[:, None] * scales  # (L, E/2)
    made = np.zeros((length, size), np.float32)
    made[:, :half], made[:, half : 2 * half] = np.sin(angles), np.cos(angles)
    return made
