"""One TOML file for a training run."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from glassrank.errors import InputError
from glassrank.settings import from_plain

Loss = Literal["hinge", "ranknet", "pointwise", "softmax", "gains", "margin_mse", "kl"]
Sampling = Literal["first_stage", "nearest_grade", "lower_grades"]


@dataclass(frozen=True)
class Collection:
    """Documents, queries and judgments of one collection."""

    name: str
    docs: str
    train_queries: str
    train_qrels: str
    dev_queries: str | None = None
    dev_qrels: str | None = None
    test_queries: str | None = None
    test_qrels: str | None = None


@dataclass(frozen=True)
class VectorsConfig:
    """Where word vectors come from."""

    source: Literal["file", "sentence_transformer", "word2vec", "fasttext", "random"] = "random"
    path: str | None = None
    """The file, or the folder of the sentence transformer."""
    size: int = 300
    min_count: int = 2
    train: bool = True
    """Whether training updates them."""


@dataclass(frozen=True)
class CandidatesConfig:
    """What the first stage gives: negatives to learn from, candidates to validate on."""

    method: str = "bm25"
    train_depth: int = 100
    dev_depth: int = 100
    teacher: str | None = None
    """A sentence transformer's folder whose similarities are kept as teacher scores."""


@dataclass(frozen=True)
class SamplerConfig:
    kind: Sampling = "first_stage"
    negatives: int = 1
    batch: int = 64
    collection_power: float = 1.0
    """Collections are mixed by their number of queries to this power."""


@dataclass(frozen=True)
class LossConfig:
    kind: Loss = "hinge"
    temperature: float = 20.0
    """Teacher scores are multiplied by this before the softmax (kl)."""
    positive_bonus: float = 0.0
    """Added to the teacher's logit of judged positives (kl)."""


@dataclass(frozen=True)
class OptimizerConfig:
    vectors: float = 1e-4
    contextual: float = 1e-4
    rest: float = 1e-3
    steps: int = 10_000
    warmup: int = 0
    clip: float | None = None
    plateau_factor: float = 0.5
    plateau_patience: int = 10


@dataclass(frozen=True)
class ValidationConfig:
    every: int = 500
    measure: str = "RR@10"
    patience: int = 35
    queries: int = 1000
    """At most this many dev queries while training; all of them at the end."""


@dataclass(frozen=True)
class TrainConfig:
    model: str
    collections: tuple[Collection, ...]
    out: str
    prepared: str
    seed: int = 42
    query_length: int = 30
    doc_length: int = 200
    first_stage_weight: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    """The model's own settings."""
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    candidates: CandidatesConfig = field(default_factory=CandidatesConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)


def read_config(path: str | Path) -> TrainConfig:
    """Paths in it are relative to the file's own folder. `extends` names another file, whose
    settings hold where this one says nothing."""
    return from_plain(TrainConfig, _plain(Path(path)), "")


def _plain(path: Path) -> dict[str, Any]:
    try:
        plain = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    if "extends" in plain:
        return _merged(_plain(path.parent / plain.pop("extends")), plain)
    return plain


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    both = {n: _merged(base[n], v) for n, v in own.items() if isinstance(v, dict) and n in base}
    return base | own | both
