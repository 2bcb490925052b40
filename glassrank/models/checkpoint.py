"""A model folder: `config.json`, `weights.safetensors`, `vocabulary.txt`, a manifest and `card.md`.

An ensemble's has its members' folders inside, in the place of weights and vocabulary. Nothing is
ever unpickled. A folder appears whole or not at all, and may come from a stranger: what loading
cannot vouch for is refused in one sentence. The card is for people, who may edit it.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load

from glassrank.checked import parse_json
from glassrank.errors import InputError
from glassrank.folders import Folder
from glassrank.models import (
    MODELS,
    Ensemble,
    Ranker,
    SubwordTable,
    TokenBatch,
    WordTable,
    find_family,
    is_outside,
)
from glassrank.models.calibration import Calibration
from glassrank.models.weights import (
    MOST_BYTES,
    TensorInfo,
    build,
    fill,
    read_header,
    whole_header,
    whole_vectors,
)
from glassrank.models.word_tables import check_vocabulary
from glassrank.nn.threads import one_thread
from glassrank.sealed import (
    SealedFiles,
    about,
    read_sealed,
    sealed_files,
)
from glassrank.settings import from_plain, modest, to_plain

FORMAT = 1
DEFAULT = Path(__file__).parent / "default"
"""The model that comes with the package."""
CONFIG, WEIGHTS = "config.json", "weights.safetensors"
VOCABULARY, CARD = "vocabulary.txt", "card.md"
_CONFIG_BYTES, _VOCABULARY_BYTES = 1 << 20, 1 << 26
_LONGEST_TEXT = 10_000
_MOST_MEMBERS = 100
_TRIED = 8


@dataclass(frozen=True)
class Usage:
    """How a model is used: what it was trained for, so that nobody has to remember."""

    query_length: int = 30
    doc_length: int = 200
    depth: int | None = None
    """The re-ranking depth that was best on dev queries."""
    first_stage: str = "bm25"
    calibration: Calibration | None = None
    """Of scores to probabilities of relevance, on dev queries."""
    texts_calibration: Calibration | None = None
    """The same of texts that no first stage has scored, for a model that mixes such scores in."""
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


@dataclass(frozen=True)
class SavedModel:
    """A model with all that is needed to use it."""

    model: Ranker
    usage: Usage
    vocabulary: list[str]
    """Words by id; the first two are padding and the unknown word."""

    @property
    def unknown_buckets(self) -> int:
        """How many vectors words share that are not in the vocabulary: those behind its own."""
        words = self.model.rankers()[0].words
        if words is None or isinstance(words, SubwordTable):
            return 0
        return len(words.embedding.weight) - len(self.vocabulary)


@dataclass(frozen=True)
class ModelConfig:
    """What `config.json` holds; an ensemble has members, and nothing of its own."""

    format: int
    model: str
    usage: Usage
    config: dict[str, Any] = field(default_factory=dict)
    words: tuple[int, ...] | None = field(default=None, metadata={"largest": 1 << 30})
    """How many words have a vector, and how long it is."""
    first_stage_weight: bool = False
    members: tuple[str, ...] = ()


def load_named(model: str | Path) -> SavedModel:
    """A model as people name it: `default` for the one that comes with the package, a folder's
    path, or `module:Class@FOLDER` for a folder whose model is a class of that module."""
    folder, trusted = named_folder(model)
    return load_model(folder, trusted=trusted)


def named_folder(model: str | Path) -> tuple[Path, list[str]]:
    """The folder that a name stands for, and the class outside this package that it trusts.

    >>> named_folder("runs/tk"), named_folder("mine:Siamese@runs/siamese")
    ((PosixPath('runs/tk'), []), (PosixPath('runs/siamese'), ['mine:Siamese']))
    """
    name, at, folder = str(model).partition("@")
    if at and is_outside(name):
        return Path(folder), [name]
    return DEFAULT if str(model) == "default" else Path(model), []


def load_model(folder: Path, *, trusted: Collection[str] = ()) -> SavedModel:
    """Reads and never writes; beside a process that saves, the old model or the new one. Only
    classes that are `trusted`, as `module:Class`, are looked for outside this package: a folder
    cannot say by itself that code is run."""
    folder = Path(folder)
    with one_thread():  # for steps as short as these, a second one costs more than it does
        return read_sealed(
            folder,
            "model",
            partial(load_files, trusted=trusted),
            remedy="train one with: glassrank train CONFIG.toml",
            unsealed=f"if an older version saved it: python -m glassrank.models.seal {folder}",
        )


def load_files(files: SealedFiles, trusted: Collection[str] = ()) -> SavedModel:
    """The model whose files these are, checksums looked at."""
    with about(files.path, "it does not hold a model that can be used"):
        stored = load_config(files)
        if stored.model == Ensemble.name:
            return load_ensemble(files.folder, stored, trusted)
        if stored.model not in MODELS and not is_outside(stored.model):
            raise InputError(f"it holds a {stored.model!r}, which this version does not know")
        family = find_family(stored.model, trusted)
        config: Any = modest(from_plain(family.config_type, stored.config, "config"), "config")
        with files.open(WEIGHTS, MOST_BYTES) as file:
            header = read_header(file, files.size(WEIGHTS))

            def make() -> Ranker:
                table = None if stored.words is None else _empty_table(stored.words, header)
                model = family(config, table)
                if stored.first_stage_weight:
                    model.mix_first_stage()
                return model

            model = build(make, whole_header(header))
            tensors = load(files.rest(WEIGHTS, file))
        fill(model, whole_vectors(tensors))
        if isinstance(model.words, SubwordTable):
            model.words.check()
        text = files.read(VOCABULARY, _VOCABULARY_BYTES).decode("utf-8")
        *words, end = text.split("\n")
        if end:
            raise InputError(f"{VOCABULARY} ends within a line")
        check_vocabulary(model, words)
        _try_out(model.eval(), stored.usage)
        return SavedModel(model, stored.usage, words)


def load_config(files: SealedFiles) -> ModelConfig:
    """What `config.json` says, as far as it can be without the model's class."""
    with about(files.path, f"{CONFIG} is not what a model has"):
        plain = parse_json(files.read(CONFIG, _CONFIG_BYTES))
        if not isinstance(plain, dict):
            raise InputError(f"{CONFIG} is not a table")
        if type(plain.get("format")) is not int or plain["format"] != FORMAT:
            version = str(plain.get("format"))[:40]
            raise InputError(f"it has model format {version}, this version reads {FORMAT}")
        return modest(from_plain(ModelConfig, plain), CONFIG)


def load_ensemble(folder: Folder, stored: ModelConfig, trusted: Collection[str] = ()) -> SavedModel:
    """An ensemble's members, each from the folder of its name."""
    names = stored.members
    if not 1 <= len(names) <= _MOST_MEMBERS or len(set(names)) < len(names):
        raise InputError(f"{folder.path}: an ensemble has 1 to {_MOST_MEMBERS} different members")
    members = [_load_member(folder, name, trusted) for name in names]
    first = members[0]
    if any(
        (member.vocabulary, member.unknown_buckets) != (first.vocabulary, first.unknown_buckets)
        for member in members
    ):
        raise InputError(f"{folder.path}: an ensemble's members must have one vocabulary")
    lengths = [(member.usage.query_length, member.usage.doc_length) for member in members]
    model = Ensemble([member.model for member in members], lengths)
    return SavedModel(model.eval(), stored.usage, first.vocabulary)


def _load_member(folder: Folder, name: str, trusted: Collection[str]) -> SavedModel:
    with folder.child(name) as inner:
        files = sealed_files(inner, "model", "make the ensemble again")
        if load_config(files).model == Ensemble.name:
            raise InputError(f"{inner.path} is an ensemble, and no ensemble has one in it")
        return load_files(files, trusted)


@torch.no_grad()
def _try_out(model: Ranker, usage: Usage) -> None:
    """One short pair: settings that fit the weights may still make no sense."""
    lengths = min(usage.query_length, _TRIED), min(usage.doc_length, _TRIED)
    query, doc = (TokenBatch(torch.ones(1, n).long(), torch.ones(1, n)) for n in lengths)
    if not model(query, doc).isfinite().all():
        raise InputError("the model gives no finite score")


def _empty_table(shape: Sequence[int], header: dict[str, TensorInfo]) -> WordTable:
    rows, size = shape
    vectors = torch.empty(rows, size)
    if "words.ngrams" not in header:
        return WordTable(vectors, trained=False)
    layout = (torch.empty(header[f"words.{n}"].shape) for n in ("offsets", "rows", "ngrams"))
    return SubwordTable(vectors, *layout, trained=False)


def fingerprint(model: Ranker) -> str:
    """The same for the same weights, another for any other: what a document store is tied to."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(to_plain(model.config), sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        values = tensor.detach().cpu().contiguous().numpy()
        digest.update(values.reshape(-1).view(np.uint8).data)  # without a copy
    return digest.hexdigest()
