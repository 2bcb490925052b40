"""Settings of a training run: one dataclass for each table of its TOML file."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from glassrank.errors import InputError
from glassrank.models.io.model_folder import Passages

Say = Callable[[str], None]
"""Receives progress, line by line."""
Unjudged = Literal["unknown", "irrelevant"]
Sampling = Literal["first_stage", "nearest_grade", "lower_grades", "grade_groups", "triples"]


@dataclass(frozen=True)
class Collection:
    """Documents, queries and judgments of one collection."""

    name: str
    docs: str
    """A file, a folder, an ir_datasets name, or an index."""
    train_queries: str
    train_qrels: str
    dev_queries: str | None = None
    dev_qrels: str | None = None
    test_queries: str | None = None
    test_qrels: str | None = None
    topic_field: str = "title"
    """Which field of TREC topics is the query: title, desc or narr."""


@dataclass(frozen=True)
class VectorsConfig:
    """Word vectors."""

    source: Literal["file", "sentence_transformer", "word2vec", "fasttext", "random"] = "random"
    path: str | None = None
    """The file, or the folder of the sentence transformer. With fasttext: a trained `.bin`."""
    size: int = 300
    min_count: int = 2
    most_words: int | None = None
    """Keep only the most frequent words."""
    unknown_buckets: int = 0
    """Hash words without a vector into this many; 0: they share one."""
    train: bool = True
    """Whether training updates the vectors."""
    scale: float = 1.0
    """Factor for all values. TK's authors use 10 for FastText: TK's position signal has a length
    of about 12, and would drown shorter vectors."""
    saved: Literal["float32", "float16", "int8"] = "float32"
    """The dtype in the saved model."""
    subwords: bool = False
    """With fasttext: train the n-gram vectors, so that unseen words have vectors too."""
    buckets: int = 200_000
    """Number of hash buckets for n-grams (fasttext)."""
    window: int = 5
    """Context window of word2vec and fasttext; 10 in the RPACRR paper."""
    whole_documents: bool = False
    """Whether vocabulary and idf count whole documents, not their first doc_length words."""

    def __post_init__(self) -> None:
        if self.subwords and self.source != "fasttext":
            raise InputError(
                f'vectors.subwords needs vectors.source = "fasttext", found {self.source!r}'
            )
        if self.subwords and self.unknown_buckets:
            raise InputError(
                "vectors.subwords has no unknown words; leave out vectors.unknown_buckets"
            )


@dataclass(frozen=True)
class StartConfig:
    """The weights that a model starts from, and which of them are trained."""

    bert: str | None = None
    """A pretrained BERT: a folder, `package:NAME/FOLDER`, or a name on the hub. It sets the sizes,
    which stay out of `config`. With `model`: only the encoder starts from these weights."""
    interaction: Literal["copied", "random_cross", "random"] = "copied"
    """MORES: start its blocks from the BERT's last layers (copied), with random cross-attention
    (random_cross), or at random."""
    model: str | None = None
    """A checkpoint's folder, to fine-tune."""
    layers: tuple[int, ...] = ()
    """Keep only these layers of the encoder of `model`, from 0: see `loss.vectors`."""
    feed_forward: int | None = None
    """With `layers`: the feed-forward size to keep; default: all."""
    heads: int | None = None
    """With `layers`: the number of attention heads to keep; default: all."""
    parts: Literal["all", "interaction", "representation"] = "all"
    """Which part of a MORES is trained; the rest is frozen."""

    def __post_init__(self) -> None:
        if self.layers and (self.model is None or self.bert is not None):
            raise InputError("start.layers needs start.model, without start.bert")
        for name in ("feed_forward", "heads"):
            if getattr(self, name) is not None and not self.layers:
                raise InputError(f"start.{name} needs start.layers; name the layers to keep")


@dataclass(frozen=True)
class CandidatesConfig:
    """Candidates of the first stage: negatives for training, lists for validation."""

    method: str = "bm25"
    train_depth: int = 100
    dev_depth: int = 100
    train_kept: int | None = None
    """Keep this many random unjudged documents of a training query, to save memory."""
    train_queries: int | None = None
    """Sample at most this many training queries of each collection."""
    dev_queries: int | None = None
    """Sample at most this many dev queries of each collection."""
    run: tuple[str, ...] = ()
    """Precomputed runs of the first stage, for all train, dev and test queries; nothing is then
    searched."""
    teacher_scores: tuple[str, ...] = ()
    """Precomputed runs with a teacher's scores. A missing candidate gets the lowest score of its
    query."""
    teacher: str | None = None
    """The teacher for distillation losses: the folder of a sentence transformer or of any
    checkpoint."""
    teachers: dict[str, float] = field(default_factory=dict)
    """Several teachers with weights: the weighted mean of their scores, each standardized over a
    query's candidates."""

    def __post_init__(self) -> None:
        if (self.teacher is not None) + bool(self.teachers) + bool(self.teacher_scores) > 1:
            raise InputError("candidates: give only one of teacher, teachers and teacher_scores")
        for name, weight in self.teachers.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
                raise InputError(f"candidates.teachers.{name}: expected a weight above 0")


@dataclass(frozen=True)
class SamplerConfig:
    """How batches are sampled."""

    kind: Sampling = "first_stage"
    """Source of negatives: the first stage, the nearest lower grade, all lower grades; or
    grade_groups, as in the RPACRR paper: grade x - 1 for a positive of grade x, with all positives
    equally likely."""
    positives: Literal["judged", "found"] = "judged"
    """All relevant documents, or only those that the first stage found. If it misses many, a model
    trained on all learns that high first-stage scores are irrelevant."""
    unjudged: Unjudged = "unknown"
    """Whether retrieved, unjudged documents count as grade 0 when negatives go by grade. Without
    it, collections that only judge relevant documents have no irrelevant negatives."""
    negatives: int = 1
    batch: int = 64
    collection_power: float = 1.0
    """Collections are sampled by their number of queries to this power."""
    triples: str | None = None
    """A file of (query, relevant document, other document) triples, used in its order instead of
    train_qrels."""
    triples_of: Literal["ids", "texts"] = "ids"
    """Whether the file has ids or texts, as MS MARCO's triples.train.small.tsv."""
    shuffle: bool = False
    """Shuffle triples in each epoch."""

    def __post_init__(self) -> None:
        if (self.kind == "triples") != (self.triples is not None):
            raise InputError(
                'sampler.kind = "triples" needs the file sampler.triples, and the other way round'
            )
        if self.kind == "triples" and self.negatives != 1:
            raise InputError(f"triples need sampler.negatives = 1, found {self.negatives}")


@dataclass(frozen=True)
class LossConfig:
    """The loss."""

    kind: Literal["hinge", "ranknet", "pointwise", "softmax", "gains", "margin_mse", "kl"] = "hinge"
    temperature: float = 20.0
    """Factor of teacher scores before the softmax (kl)."""
    positive_bonus: float = 0.0
    """Added to the teacher's logits of judged positives (kl)."""
    standardized: bool = False
    """Whether teacher scores are standardized in each list (kl); then use a temperature of 1 to
    2."""
    vectors: float = 0.0
    """Weight of the distillation of token vectors from `start.model`, for a pruned model. 8 works
    well."""
    vectors_of: str | None = None
    """Another checkpoint's folder to distill vectors from, instead of `start.model`."""

    def __post_init__(self) -> None:
        if self.vectors_of is not None and not self.vectors:
            raise InputError("loss.vectors_of needs loss.vectors, the weight of its loss")


@dataclass(frozen=True)
class OptimizerConfig:
    """Learning rates, schedule and number of steps."""

    vectors: float = 1e-4
    contextual: float = 1e-4
    rest: float = 1e-3
    precision: Literal["float32", "bf16"] = "float32"
    """Precision of products in the encoders; weights and sums stay float32."""
    weight_decay: float = 0.0
    """Weight decay; not of norms, biases and word vectors."""
    schedule: Literal["constant", "linear"] = "constant"
    """Rates after the warm-up: constant, or linear to zero at the last step."""
    steps: int = 10_000
    warmup: int = 0
    clip: float | None = None
    plateau_factor: float = 0.5
    plateau_patience: int = 10


@dataclass(frozen=True)
class ValidationConfig:
    """Validation and early stopping."""

    every: int = 500
    measure: str = "RR@10"
    patience: int = 35
    queries: int = 1000
    """At most this many dev queries during training; all at the end."""
    depth: Literal["all", "best"] = "all"
    """How steps are compared: with all candidates re-ranked, or at the best depth from 5 on, as
    TK's authors do. At depth 1 every model equals the first stage."""


@dataclass(frozen=True)
class FoldsConfig:
    """Cross-validation for `adapt` and `experiment`: each model is tested on one fold, validated on
    the next and trained on the others."""

    count: int = 5
    file: str | None = None
    """JSON with a list of query ids for each fold, or Robust04's format; default: random folds."""

    def __post_init__(self) -> None:
        if self.count < 3:
            raise InputError(
                f"folds.count must be 3 or more (train, validate, test), found {self.count}"
            )


@dataclass(frozen=True)
class TrainConfig:
    """A whole run."""

    model: str
    collections: tuple[Collection, ...]
    out: str
    prepared: str
    seed: int = 42
    query_length: int = 30
    doc_length: int = 200
    passages: Passages = field(default_factory=Passages)
    """How the trained model divides longer documents."""
    train_on: Literal["beginnings", "passages"] = "beginnings"
    """What training reads of longer documents: their beginnings; or a random passage in each step,
    with its document's grade. Validation then uses the best passages."""
    remove_stop_words: bool = False
    """Whether function words and punctuation are removed before texts are cut, as in the RPACRR
    paper; for models on words."""
    first_stage_weight: bool = False
    """Whether the weight of the first stage's score is learned."""
    fixed_first_stage_weight: float | None = None
    """A fixed weight, added to the finished model; training and validation do not use it."""
    config: dict[str, Any] = field(default_factory=dict)
    """The model's own settings."""
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    start: StartConfig = field(default_factory=StartConfig)
    candidates: CandidatesConfig = field(default_factory=CandidatesConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    folds: FoldsConfig | None = None
    search: tuple[dict[str, Any], ...] = ()
    """Settings to try, each a table of changes: `glassrank experiment` trains all, and keeps the
    best on dev queries."""
    search_steps: int | None = None
    """Steps of each trial; the best is then trained in full. None: all are trained in full."""

    @property
    def lengths(self) -> tuple[int, int]:
        """Of queries and documents, in tokens."""
        return self.query_length, self.doc_length

    def __post_init__(self) -> None:
        if self.first_stage_weight and self.fixed_first_stage_weight is not None:
            raise InputError(
                "give first_stage_weight (learned) or fixed_first_stage_weight, not both"
            )
        if self.loss.vectors and self.start.model is None:
            raise InputError("loss.vectors needs start.model")
        if self.train_on != "passages":
            return
        if self.passages.most == 1:
            raise InputError('train_on = "passages" needs passages.most above 1')
        if self.candidates.teacher is not None or self.candidates.teachers:
            raise InputError(
                'a teacher reads the beginnings of documents; leave out train_on = "passages", or '
                "give its scores of whole documents in candidates.teacher_scores"
            )
        if self.sampler.triples is not None and self.sampler.triples_of == "texts":
            raise InputError(
                'triples of texts have no passages; leave out train_on = "passages", or give ids'
            )
