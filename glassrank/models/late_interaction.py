"""Settings of the late-interaction models and of TK, without PyTorch or ONNX Runtime: training,
explanations and `onnx_models.py`, which computes these models for ranking, read them."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import EncoderConfig, Kernels
from glassrank.models.model import ModelInfo, SubwordText


@dataclass(frozen=True)
class LateInteractionConfig:
    """The encoder, and the size of its token embeddings."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    text: SubwordText = field(default_factory=SubwordText)
    size: int = 128
    """Of the vectors that are compared, and stored: 64 to 192 serve well."""


@dataclass(frozen=True)
class KernelBERTConfig(LateInteractionConfig):
    """The encoder's settings, and the kernels over its subwords."""

    kernels: Kernels = field(default_factory=Kernels.rising)
    monotone: bool = True
    """Whether no kernel weight may be negative."""


MAXSIM = ModelInfo(
    "maxsim",
    LateInteractionConfig,
    uses_subwords=True,
    is_additive=True,
    summands=("best match",),
    has_term_weights=True,
    stores_embeddings=True,
    encoders=("encoder",),
)
"""Each query subword counts as much as the document subword most like it."""
KERNEL_BERT = replace(
    MAXSIM, name="kernel_bert", config_type=KernelBERTConfig, summands=("log", "length")
)
"""Kernels count subwords of at least some similarity."""


@dataclass(frozen=True)
class ContextualConfig:
    """The number and the sizes of TK's contextual layers."""

    layers: int = 2
    heads: int = 16
    attention_size: int = 32
    per_head: bool = False
    """Whether `attention_size` is each head's, as the paper reads, or all heads' together, as the
    authors' code has it."""
    feed_forward: int = 100

    @property
    def total(self) -> int:
        """Values of all heads together."""
        total = self.attention_size * (self.heads if self.per_head else 1)
        if total % self.heads:
            raise ValueError(f"attention of size {total} cannot be cut into {self.heads} heads")
        return total

    def scale(self, size: int) -> float:
        """Of attention scores. The authors scale by the size that a head of the input would
        have."""
        head_size = self.total // self.heads if self.per_head else size // self.heads
        return 1 / math.sqrt(head_size)


@dataclass(frozen=True)
class TKConfig:
    """The defaults are those of the paper."""

    size: int = 300
    contextual: ContextualConfig = field(default_factory=ContextualConfig)
    kernels: Kernels = field(default_factory=Kernels.eleven)
    term_weights: bool = False
    """A learned weight for each query word, from its own vector; 1 for all in the paper."""
    monotone: bool = False
    """Whether no kernel weight may be negative; with `kernels.at_least`, a closer match then never
    counts against a document."""


TK_INFO = ModelInfo(
    "tk",
    TKConfig,
    is_additive=True,
    summands=("log", "length"),
    has_term_weights=True,
    stores_embeddings=True,
)


def sinusoidal_positions(length: int, size: int) -> NDArray[np.float32]:
    """(L, E): sines in the first half of the channels, cosines in the second."""
    half = size // 2
    steps = math.log(1e4) / max(half - 1, 1)  # so that the slowest has a time scale of 10,000
    scales = np.exp(np.arange(half, dtype=np.float32) * np.float32(-steps))  # (E/2,)
    angles = np.arange(length, dtype=np.float32)[:, None] * scales  # (L, E/2)
    made = np.zeros((length, size), np.float32)
    made[:, :half], made[:, half : 2 * half] = np.sin(angles), np.cos(angles)
    return made
