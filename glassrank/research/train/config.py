"""The settings of a training run: one dataclass for each table of its TOML file."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from glassrank.errors import InputError
from glassrank.models.io.model_folder import Passages

if TYPE_CHECKING:
    pass

Say = Callable[[str], None]
"""Is told, line by line, how far a piece of work is."""
Loss = Literal["hinge", "ranknet", "pointwise", "softmax", "gains", "margin_mse", "kl"]
VectorFormat = Literal["float32", "float16", "int8"]
Unjudged = Literal["unknown", "irrelevant"]
Sampling = Literal["first_stage", "nearest_grade", "lower_grades", "grade_groups", "triples"]


@dataclass(frozen=True)
class Collection:
    """Documents, queries and judgments of one collection."""

    name: str
    docs: str
    """A file, a folder, an ir_datasets name; or an index, which is then not built again."""
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
    """The file, or the folder of the sentence transformer. With fasttext: its `.bin`, where none
    shall be trained."""
    size: int = 300
    min_count: int = 2
    most_words: int | None = None
    """No more than this many words, the most frequent ones."""
    unknown_buckets: int = 0
    """Words without a vector share this many by their hash, in place of a single one."""
    train: bool = True
    """Whether training updates them."""
    scale: float = 1.0
    """All values are multiplied by this; TK's authors take 10 for FastText's small ones. Vectors of
    length one drown in TK's position signal, whose length is about 12."""
    saved: VectorFormat = "float32"
    """How the finished model keeps them."""
    subwords: bool = False
    """With fasttext: words stay means of n-grams, which training updates, and unseen words have
    vectors too."""
    buckets: int = 200_000
    """Into which n-grams are hashed (fasttext)."""
    window: int = 5
    """Words on either side that word2vec and fasttext learn a word from; 10 in the RPACRR paper."""
    whole_documents: bool = False
    """Whether words are counted, for the vocabulary and for idf, in documents as they are, not in
    their first doc_length words."""

    def __post_init__(self) -> None:
        if self.subwords and self.source != "fasttext":
            raise InputError(
                f'vectors.subwords needs vectors.source = "fasttext", found {self.source!r}'
            )
        if self.subwords and self.unknown_buckets:
            raise InputError("vectors.subwords knows every word; leave vectors.unknown_buckets out")


@dataclass(frozen=True)
class StartConfig:
    """What a model begins with, in the place of random weights, and what of it is trained."""

    bert: str | None = None
    """Of a transformer: a pretrained BERT's folder, `package:NAME/FOLDER`, or a name on the hub.
    Sizes are then the BERT's own, and stay out of `config`. Beside `model`: its encoder begins
    anew with these weights, and the rest goes on, so that both runs can be mixed."""
    interaction: Literal["copied", "random_cross", "random"] = "copied"
    """Of MORES: whether its blocks begin as the BERT's last layers, or with attention to the
    document, or all of it, at random."""
    model: str | None = None
    """A trained model's folder: training goes on with its weights, for other texts, say."""
    layers: tuple[int, ...] = ()
    """Only these layers of the encoder of `model`, from 0 on: see `loss.vectors`."""
    feed_forward: int | None = None
    """With `layers`: how many values they keep between the two products of a feed-forward layer;
    all, if not given."""
    heads: int | None = None
    """With `layers`: how many heads of attention each of them keeps; all, if not given."""
    parts: Literal["all", "interaction", "representation"] = "all"
    """What of a MORES is trained; the rest stays as it is."""

    def __post_init__(self) -> None:
        if self.layers and (self.model is None or self.bert is not None):
            raise InputError("start.layers are those of start.model; name it, and no start.bert")
        for name in ("feed_forward", "heads"):
            if getattr(self, name) is not None and not self.layers:
                raise InputError(f"start.{name} goes with start.layers; name the layers to keep")


@dataclass(frozen=True)
class CandidatesConfig:
    """What the first stage gives: negatives to learn from, candidates to validate on."""

    method: str = "bm25"
    train_depth: int = 100
    dev_depth: int = 100
    train_kept: int | None = None
    """Of the documents that a training query found, only so many, drawn at random, beside judged
    ones: large collections then fit in memory."""
    train_queries: int | None = None
    """At most this many training queries of each collection, drawn at random."""
    dev_queries: int | None = None
    """The same for dev queries."""
    run: tuple[str, ...] = ()
    """Runs that stand for the first stage, for all queries that are trained on or looked at, in one
    file or several; nothing is then searched for."""
    teacher_scores: tuple[str, ...] = ()
    """Runs with a teacher's scores, in the place of a teacher. A candidate that they lack has the
    lowest score of its query."""
    teacher: str | None = None
    """Whose scores are kept for losses that learn from them: a sentence transformer's folder, or a
    trained model's, of any kind."""
    teachers: dict[str, float] = field(default_factory=dict)
    """Several of them, each with its weight. What is kept is the mean of their scores, after each
    has been brought to mean 0 and deviation 1 among a query's candidates."""

    def __post_init__(self) -> None:
        if (self.teacher is not None) + bool(self.teachers) + bool(self.teacher_scores) > 1:
            raise InputError(
                "candidates: teacher is one, teachers are several, teacher_scores are a file's; "
                "keep one of them"
            )
        for name, weight in self.teachers.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
                raise InputError(f"candidates.teachers.{name}: expected a weight above 0")


@dataclass(frozen=True)
class SamplerConfig:
    """What a batch is made of."""

    kind: Sampling = "first_stage"
    """Where negatives are from: what the first stage found, the nearest lower grade, all lower
    ones; or, as the RPACRR paper has it, grade x - 1 for a positive of grade x, with every such
    positive as likely as any other, so that groups come up by their sizes."""
    positives: Literal["judged", "found"] = "judged"
    """All relevant documents, or only those that the first stage found. Where it misses many, a
    model that sees all of them learns that what the first stage likes is irrelevant."""
    unjudged: Unjudged = "unknown"
    """Whether documents that were found and nobody judged are of grade 0 where negatives go by
    grades. Collections whose judgments name relevant documents alone have no other negatives: a
    model would learn to tell grade 2 from 1, and nothing of what is not relevant."""
    negatives: int = 1
    batch: int = 64
    collection_power: float = 1.0
    """Collections are mixed by their number of queries to this power."""
    triples: str | None = None
    """A file of query, relevant and other document ids (triples), taken in its order; the queries
    are those it names, whatever train_qrels says."""
    triples_of: Literal["ids", "texts"] = "ids"
    """What the file has: ids, or the texts themselves, as MS MARCO's triples.train.small.tsv."""
    shuffle: bool = False
    """Triples in another order in each pass over the file."""

    def __post_init__(self) -> None:
        if (self.kind == "triples") != (self.triples is not None):
            raise InputError('sampler.kind = "triples" and the file sampler.triples go together')
        if self.kind == "triples" and self.negatives != 1:
            raise InputError(f"triples have 1 negative, found sampler.negatives = {self.negatives}")


@dataclass(frozen=True)
class LossConfig:
    """What is minimised."""

    kind: Loss = "hinge"
    temperature: float = 20.0
    """Teacher scores are multiplied by this before the softmax (kl)."""
    positive_bonus: float = 0.0
    """Added to the teacher's logit of judged positives (kl)."""
    standardized: bool = False
    """Whether teacher scores are first brought to mean 0 and deviation 1 in each list (kl). Any
    teacher then asks for the same contrast; a temperature of 1 to 2 is usual."""
    vectors: float = 0.0
    """How much it counts that vectors of pieces are those of `start.model`, beside the scores: for
    a model that began as some of its layers. 8 served well."""
    vectors_of: str | None = None
    """Another trained model's folder, whose vectors are learned in the place of `start.model`'s."""

    def __post_init__(self) -> None:
        if self.vectors_of is not None and not self.vectors:
            raise InputError("loss.vectors_of goes with loss.vectors; say how much they count")


@dataclass(frozen=True)
class OptimizerConfig:
    """How weights move, and for how long."""

    vectors: float = 1e-4
    contextual: float = 1e-4
    rest: float = 1e-3
    precision: Literal["float32", "bf16"] = "float32"
    """Of the products inside the encoders; weights and sums stay float32."""
    weight_decay: float = 0.0
    """Of layers' weights; norms, biases and word vectors do not decay."""
    schedule: Literal["constant", "linear"] = "constant"
    """Whether rates stay after the warm-up, or fall to zero at the last step."""
    steps: int = 10_000
    warmup: int = 0
    clip: float | None = None
    plateau_factor: float = 0.5
    plateau_patience: int = 10


@dataclass(frozen=True)
class ValidationConfig:
    """How a run is watched, and when it ends."""

    every: int = 500
    measure: str = "RR@10"
    patience: int = 35
    queries: int = 1000
    """At most this many dev queries while training; all of them at the end."""
    depth: Literal["all", "best"] = "all"
    """Where the best step is looked for: with all candidates re-ranked, or at the best depth of 5
    or more, as TK's authors do. At depth 1 every model is as good as the first stage."""


@dataclass(frozen=True)
class FoldsConfig:
    """Cross-validation over the training queries, for `adapt` and `experiment`: each fold is
    tested once, by a model that chose its best step on the next fold and learnt from the others."""

    count: int = 5
    file: str | None = None
    """JSON: lists of query ids, one for each fold, or the form of the Robust04 folds; otherwise the
    seed deals queries out."""

    def __post_init__(self) -> None:
        if self.count < 3:
            raise InputError(
                f"folds.count: to learn, to choose and to test takes 3 or more, found {self.count}"
            )


@dataclass(frozen=True)
class TrainConfig:
    """A whole run, as its TOML says."""

    model: str
    collections: tuple[Collection, ...]
    out: str
    prepared: str
    seed: int = 42
    query_length: int = 30
    doc_length: int = 200
    passages: Passages = field(default_factory=Passages)
    """How the trained model divides documents that are longer."""
    train_on: Literal["beginnings", "passages"] = "beginnings"
    """What training reads of documents that are longer: their beginnings; or the passages of the
    trained model, each as relevant as its document, one drawn at random in each step. A document
    is then validated, too, by its best ones."""
    remove_stop_words: bool = False
    """Whether function words and punctuation are left out of queries and documents before they are
    cut to their lengths, as in the RPACRR paper; of models on words."""
    first_stage_weight: bool = False
    """Whether the weight of the first stage's score is learned."""
    fixed_first_stage_weight: float | None = None
    """A weight that is not learned: training and the choice of the best step go without it, and the
    finished model has it."""
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
    """Other settings to try, each a table of what it changes: `glassrank experiment` trains the
    config as it is and with each of them, and keeps what is best on dev queries."""
    search_steps: int | None = None
    """How long each of them is tried for; the best one then begins again, with all its steps. None:
    all are trained to the end."""

    def __post_init__(self) -> None:
        if self.first_stage_weight and self.fixed_first_stage_weight is not None:
            raise InputError(
                "first_stage_weight is learned, fixed_first_stage_weight is not; keep one of them"
            )
        if self.loss.vectors and self.start.model is None:
            raise InputError("loss.vectors are those of start.model; name it, or leave them out")
        if self.train_on == "passages":
            self._check_passages()

    def _check_passages(self) -> None:
        if self.passages.most == 1:
            raise InputError(
                'train_on = "passages" divides documents, passages.most = 1 cuts them; raise it'
            )
        if self.candidates.teacher is not None or self.candidates.teachers:
            raise InputError(
                'a teacher reads the beginnings of documents: leave train_on = "passages" out, or '
                "give its scores of whole documents in candidates.teacher_scores"
            )
        if self.sampler.triples is not None and self.sampler.triples_of == "texts":
            raise InputError(
                "the texts of triples belong to no document that could be divided: leave "
                'train_on = "passages" out, or give triples of ids'
            )
