"""Settings of the late-interaction models, without PyTorch or ONNX Runtime. `bi_encoders.py` trains
these models, `onnx_models.py` computes them for ranking."""

from dataclasses import dataclass, field, replace

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
