"""The format of a model folder, and the fingerprint of a model's weights. The vocabulary is checked
here and not in `text/`, since training must run where only torch and numpy are installed.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import GlassrankError, InputError, wrap_file_errors
from glassrank.models import is_outside
from glassrank.models.calibration import Calibration
from glassrank.models.model import Model
from glassrank.settings import check_bounds, from_plain, to_plain
from glassrank.storage.atomic_folders import ChecksummedFiles
from glassrank.storage.checksummed_json import parse_json

if TYPE_CHECKING:
    from glassrank.text.subwords import PublishedTokenizer

_MOST_PASSAGES = 10_000


@dataclass(frozen=True)
class Passages:
    """How documents that are longer than a model reads are divided, and what their score is."""

    overlap: int = 0
    """How much of a passage the next one begins with, at most: whole sentences of so many words, or
    pieces, as the model reads."""
    most: int = 64
    """Of one document: what stands behind them is not read. With 1, documents are cut."""
    best: int = 1
    """A document's score is the sum of those of so many passages, the best ones."""
    first: float = 0.0
    """How much of that is the score of its first passage instead, from 0 to 1: a long document has
    many passages, of which one may be good by chance, and begins with what it is about."""

    def __post_init__(self) -> None:
        if not 0 <= self.first <= 1:
            raise InputError(f"passages.first: expected a number from 0 to 1, found {self.first}")
        if self.overlap < 0 or not 1 <= self.best <= self.most <= _MOST_PASSAGES:
            raise InputError(
                f"passages: expected an overlap of 0 or more, and 1 to {_MOST_PASSAGES:,} passages "
                f"of which 1 or more are the best, found {self}"
            )


FORMAT = 1
PACKAGED = {
    name: Path(__file__).parents[1] / "packaged" / name
    for name in ("strong", "default", "fast", "tiny")
}
"""The models that come with the package."""
CONFIG, WEIGHTS = "config.json", "weights.safetensors"
VOCABULARY, CARD = "vocabulary.txt", "card.md"
MODEL_FILES = (CONFIG, WEIGHTS, VOCABULARY, CARD)
MEMBERS = ("[0-9]", "[0-9][0-9]")
"""Folders of an ensemble's members."""
_CONFIG_BYTES, _VOCABULARY_BYTES = 1 << 20, 1 << 26
_LONGEST_TEXT = 10_000
_FINGERPRINT_DIGITS = 32
_TRIED = 8


@dataclass(frozen=True)
class Usage:
    """How a model is used: the lengths, depth and first stage that it was trained for."""

    query_length: int = 30
    doc_length: int = 200
    depth: int | None = None
    """The re-ranking depth that was best on dev queries."""
    first_stage: str = "bm25"
    calibration: Calibration | None = None
    """Maps scores to probabilities of relevance."""
    passages: Passages = field(default_factory=Passages)
    """How documents longer than `doc_length` are divided."""
    remove_stop_words: bool = False
    """Whether a model on words skips function words and punctuation."""
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("query_length", "doc_length"):
            if not 1 <= getattr(self, name) <= _LONGEST_TEXT:
                raise InputError(
                    f"usage.{name}: expected 1 to {_LONGEST_TEXT:,} words, "
                    f"found {getattr(self, name)}"
                )
        if self.depth is not None and self.depth < 1:
            raise InputError(f"usage.depth: expected 1 or more documents, found {self.depth}")

    def short_ids(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """A query and a document of a few words, to try a model with."""
        ids = np.ones(_TRIED, np.int32)
        return ids[: self.query_length], ids[: self.doc_length]


@dataclass(frozen=True)
class SavedModel:
    """A model with all that is needed to use it."""

    model: Any
    """A `Model`: computed by ONNX Runtime if it was loaded for inference and its family allows
    it."""
    usage: Usage
    vocabulary: list[str]
    """Words by id; the first two are padding and the unknown word."""
    load_trained: "Callable[[], SavedModel] | None" = field(default=None, repr=False)
    """Loads the same model for PyTorch, where ONNX Runtime computes this one."""
    tokenizer: "PublishedTokenizer | None" = field(default=None, repr=False)
    """A published model brings its own."""

    def trained(self) -> "SavedModel":
        """The same model computed by PyTorch: in float32, or on a GPU."""
        if self.load_trained is None:
            return self
        trained = self.load_trained()
        if fingerprint(trained.model) != fingerprint(self.model):
            raise GlassrankError("the model folder has changed meanwhile; load it again")
        return trained

    @property
    def unknown_buckets(self) -> int:
        """How many vectors unknown words share: those behind the vocabulary's own."""
        words = self.model.rankers()[0].words
        if words is None or not words.has_buckets:
            return 0
        return int(words.vector_count) - len(self.vocabulary)


@dataclass(frozen=True)
class ModelConfig:
    """The content of `config.json`; an ensemble has members instead of weights."""

    format: int
    model: str
    usage: Usage
    config: dict[str, Any] = field(default_factory=dict)
    words: tuple[int, ...] | None = field(default=None, metadata={"largest": 1 << 30})
    """The shape of the table of word vectors."""
    first_stage_weight: bool = False
    members: tuple[str, ...] = ()

    def read_settings(self, config_type: type[Any]) -> Any:
        """The settings of the model's class."""
        return check_bounds(from_plain(config_type, self.config, "config"), "config")


def resolve_folder(model: str | Path) -> tuple[Path, list[str]]:
    """The folder of a model's name, and the class outside this package that the name trusts.

    >>> resolve_folder("runs/tk"), resolve_folder("mine:Siamese@runs/siamese")
    ((PosixPath('runs/tk'), []), (PosixPath('runs/siamese'), ['mine:Siamese']))
    """
    if not str(model):
        raise InputError(f"a model's name is empty; expected {', '.join(PACKAGED)} or a folder")
    name, at, folder = str(model).partition("@")
    if at and is_outside(name):
        return Path(folder), [name]
    return PACKAGED.get(str(model)) or Path(model), []


def load_config(files: ChecksummedFiles) -> ModelConfig:
    """Reads `config.json`, but for the settings of the model's class."""
    with wrap_file_errors(files.path, f"{CONFIG} is not a model's config"):
        plain = parse_json(files.read(CONFIG, _CONFIG_BYTES))
        if not isinstance(plain, dict):
            raise InputError(f"{CONFIG} is not a table")
        if type(plain.get("format")) is not int or plain["format"] != FORMAT:
            version = str(plain.get("format"))[:40]
            raise InputError(f"it has model format {version}, this version reads {FORMAT}")
        return check_bounds(from_plain(ModelConfig, plain), CONFIG)


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """As JSON."""
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def write_texts(
    folder: Path,
    family: str,
    model: Model,
    usage: Usage,
    vocabulary: Sequence[str],
    card: str,
    words: Sequence[int] | None = None,
) -> None:
    """All files of a model but its weights; `words` is the shape of its table of word vectors."""
    config = {
        "format": FORMAT,
        "model": family,
        "config": to_plain(model.config),
        "usage": to_plain(usage),
        "words": words,
        "first_stage_weight": model.first_stage_weight is not None,
    }
    write_config(folder, config)
    (folder / VOCABULARY).write_text("".join(f"{word}\n" for word in vocabulary), "utf-8")
    (folder / CARD).write_text(card, "utf-8")


def load_vocabulary(files: ChecksummedFiles) -> list[str]:
    """Words or subwords by id."""
    text = files.read(VOCABULARY, _VOCABULARY_BYTES).decode("utf-8")
    *words, end = text.split("\n")
    if end:
        raise InputError(f"{VOCABULARY} ends within a line")
    return words


def fingerprint(model: Model) -> str:
    """A hash of settings and weights, which ties a store to its model."""
    digest = hashlib.sha256()  # a third of blake2b's time: processors have instructions for it
    digest.update(json.dumps(to_plain(model.config), sort_keys=True).encode())
    for name, chunks in sorted(model.weight_chunks(), key=lambda named: named[0]):
        digest.update(name.encode())
        for values in chunks:
            digest.update(values.reshape(-1).view(np.uint8).data)  # without a copy
    return digest.hexdigest()[:_FINGERPRINT_DIGITS]


SPECIAL_WORDS = ("<pad>", "<unk>")
SPECIAL_SUBWORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def check_vocabulary(
    vocabulary: Sequence[str], rows: int, *, subwords: bool, all_known: bool = False
) -> None:
    """Raises an InputError unless the special tokens are there, no token is there twice, and each
    has one of the model's vectors; with `all_known`, each vector has a token too."""
    known = set(vocabulary)
    kind = "subwords are no vocabulary of a BERT" if subwords else "words are no vocabulary"
    if subwords:
        for token in SPECIAL_SUBWORDS:
            if token not in known:
                raise InputError(f"its {kind}: {token} is missing")
        if vocabulary[0] != SPECIAL_SUBWORDS[0]:
            raise InputError(f"its {kind}: {SPECIAL_SUBWORDS[0]} is missing at the beginning")
    elif tuple(vocabulary[:2]) != SPECIAL_WORDS:
        raise InputError(f"its {kind}: {' and '.join(SPECIAL_WORDS)} come first")
    if len(known) < len(vocabulary):
        raise InputError(f"its {kind}: one of them appears twice")
    if len(vocabulary) > rows or (all_known and len(vocabulary) < rows):
        raise InputError(f"its vocabulary has {len(vocabulary):,} words, the model {rows:,}")
