"""Settings of the late-interaction models, without PyTorch or ONNX Runtime. `bi_encoders.py` trains
these models, `onnx_models.py` computes them for ranking."""

from dataclasses import dataclass, field

from glassrank.backends.configs import EncoderConfig, Kernels
from glassrank.models.model import Model, SubwordText


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


class LateInteractionFamily(Model):
    """A pretrained encoder reads query and document apart."""

    uses_subwords = True
    encoders: tuple[str, ...] = ("encoder",)
    stores_words = True
    weighs_terms = True


class MaxSimFamily(LateInteractionFamily):
    """Each query subword counts as much as the document subword most like it."""

    name = "maxsim"
    config_type = LateInteractionConfig
    exact = True
    summands = ("best match",)


class KernelBERTFamily(LateInteractionFamily):
    """Kernels that count subwords of at least some similarity."""

    name = "kernel_bert"
    config_type = KernelBERTConfig
    exact = True
    summands = ("log", "length")
