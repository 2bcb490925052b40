"""Settings, properties and weights of the families that are served without PyTorch: TK, MaxSim,
KernelBERT. `tk.py` and `bi_encoders.py` train them, `served.py` serves them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.backends.configs import ContextualConfig, EncoderConfig, Kernels
from glassrank.errors import InputError
from glassrank.models.ranker import AnyRanker, PieceText
from glassrank.models.weight_files import TensorInfo


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


Shapes = dict[str, tuple[int, ...]]
_ROWS_AT_ONCE = 1 << 14


class ServedTable:
    """A vector for each word id, as small as its file has it; id 0 is padding."""

    has_buckets = True

    def __init__(self, vectors: NDArray[Any], scales: NDArray[np.float32] | None) -> None:
        """(V, E) of float32, or of int8 with a scale for each (V,)."""
        self._vectors, self._scales = vectors, scales

    @property
    def vector_count(self) -> int:
        """How many vectors there are."""
        return len(self._vectors)

    def __getitem__(self, ids: Any) -> NDArray[np.float32]:
        """Of some words: (T, E)."""
        vectors = self._vectors[ids]
        if self._scales is None:
            return np.asarray(vectors, np.float32)
        floats: NDArray[np.float32] = vectors.astype(np.float32)
        floats *= self._scales[ids][..., None]
        return floats

    def chunks(self) -> Iterator[NDArray[np.float32]]:
        """All of them, some at a time."""
        for start in range(0, len(self._vectors), _ROWS_AT_ONCE):
            yield self[start : start + _ROWS_AT_ONCE]


def expected_header(
    config: Any, words: tuple[int, ...] | None, first_stage: bool, most: int
) -> dict[str, TensorInfo]:
    """What the file of a model has to hold, which holds no more than `most` weights."""
    layers = config.contextual.layers if isinstance(config, TKConfig) else config.encoder.layers
    if layers > most:
        raise InputError("its config describes far more layers than there are weights")
    shapes = _tk(config, words) if isinstance(config, TKConfig) else _late_interaction(config)
    if first_stage:
        shapes["first_stage_weight"] = ()
    return {name: TensorInfo("F32", shape) for name, shape in shapes.items()}


def _tk(config: TKConfig, words: tuple[int, ...] | None) -> Shapes:
    rows, size = (0, 0) if words is None else words
    if size != config.size:
        raise InputError(f"it reads words of {config.size} values, and its table has {size}")
    kernels = (len(config.kernels),)
    shapes: Shapes = {
        "words.embedding.weight": (rows, size),
        "words.idf": (rows,),
        "scale": (),
        "log_weights": kernels,
        "length_weights": kernels,
        "path_weights": (2,),
        **_within("contextual.", _contextual(size, config.contextual)),
    }
    return {**shapes, **_linear("term_weight", size, 1)} if config.term_weights else shapes


def _contextual(size: int, config: ContextualConfig) -> Shapes:
    total = config.total
    layer = {
        **_linear("feed_forward.0", size, config.feed_forward),
        **_linear("feed_forward.2", config.feed_forward, size),
        **_linear("query_key_value", size, 3 * total),
        **_linear("output", total, size),
        **{f"{norm}_norm.gain": (size,) for norm in ("feed_forward", "attention")},
        **{f"{norm}_norm.bias": (size,) for norm in ("feed_forward", "attention")},
    }
    return {"mix": (), **_layers(config.layers, layer)}


def _late_interaction(config: Any) -> Shapes:
    size = config.encoder.size
    shapes: Shapes = {
        **_within("encoder.", _encoder(config.encoder)),
        "projection.weight": (config.size, size),
        **_linear("term_weight", size, 1),
    }
    if isinstance(config, KernelBERTConfig):
        kernels = (len(config.kernels),)
        return {**shapes, "log_weights": kernels, "length_weights": kernels}
    return {**shapes, "scale": ()}


def _encoder(config: EncoderConfig) -> Shapes:
    size, inner, attention = config.size, config.feed_forward, config.attention
    layer = {
        **_linear("attention.query_key_value", size, 3 * attention),
        **_linear("attention.output", attention, size),
        **_norm("attention.norm", size),
        **_linear("feed_forward.inner", size, inner),
        **_linear("feed_forward.outer", inner, size),
        **_norm("feed_forward.norm", size),
    }
    kinds = config.distances
    distances = {"distances.bias.weight": (kinds, config.heads)} if kinds else {}
    return {
        **distances,
        "embeddings.pieces.weight": (config.vocabulary, size),
        "embeddings.positions.weight": (config.positions, size),
        "embeddings.types.weight": (config.types, size),
        **_norm("embeddings.norm", size),
        **_layers(config.layers, layer),
    }


def _layers(count: int, layer: Mapping[str, tuple[int, ...]]) -> Shapes:
    return {
        f"layers.{number}.{name}": shape for number in range(count) for name, shape in layer.items()
    }


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, size: int) -> Shapes:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def _within(prefix: str, shapes: Shapes) -> Shapes:
    return {prefix + name: shape for name, shape in shapes.items()}
