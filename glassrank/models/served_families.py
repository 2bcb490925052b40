"""Settings and properties of the families that are served without PyTorch: TK, MaxSim, KernelBERT.
`tk.py`, `late_interaction.py` and `kernel_bert.py` train them, `served.py` serves them."""

from dataclasses import dataclass, field

from glassrank.models.ranker import AnyRanker, PieceText
from glassrank.nn.encoder_configs import ContextualConfig, EncoderConfig
from glassrank.nn.kernel_runs import Kernels


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


class TKFamily(AnyRanker):
    """Contextual words, one match matrix, kernels on two paths."""

    name = "tk"
    config_type = TKConfig
    exact = True
    summands = ("log", "length")
    weighs_terms = True
    stores_words = True


@dataclass(frozen=True)
class LateInteractionConfig:
    """The encoder, and the size of what its pieces become."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    text: PieceText = field(default_factory=PieceText)
    size: int = 128
    """Of the vectors that are compared, and stored: 64 to 192 serve well."""


class LateInteractionFamily(AnyRanker):
    """Pieces that a pretrained encoder reads apart."""

    reads_pieces = True
    encoders: tuple[str, ...] = ("encoder",)
    stores_words = True
    weighs_terms = True


class MaxSimFamily(LateInteractionFamily):
    """Each query piece counts as much as the document piece most like it."""

    name = "maxsim"
    config_type = LateInteractionConfig
    exact = True
    summands = ("best match",)


@dataclass(frozen=True)
class KernelBERTConfig(LateInteractionConfig):
    """The encoder's settings, and the kernels over its pieces."""

    kernels: Kernels = field(default_factory=Kernels.rising)
    monotone: bool = True
    """Whether no kernel weight may be negative."""


class KernelBERTFamily(LateInteractionFamily):
    """Kernels that count pieces of at least some similarity."""

    name = "kernel_bert"
    config_type = KernelBERTConfig
    exact = True
    summands = ("log", "length")
