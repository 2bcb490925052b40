"""A model folder: `config.json`, `weights.safetensors`, `vocabulary.txt`, a manifest and `card.md`.

An ensemble's has its members' folders inside, in the place of weights and vocabulary. Nothing is
ever unpickled. A folder appears whole or not at all, and may come from a stranger: what loading
cannot vouch for is refused in one sentence. The card is for people, who may edit it.
"""

import hashlib
import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

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
    name_of,
)
from glassrank.models.weights import (
    MOST_BYTES,
    TensorInfo,
    build,
    check_finite,
    fill,
    read_header,
    smaller,
    whole_header,
    whole_vectors,
    write_tensors,
)
from glassrank.models.word_tables import check_vocabulary
from glassrank.nn.threads import one_thread
from glassrank.sealed import (
    MANIFEST,
    SealedFiles,
    about,
    read_sealed,
    sealed_files,
    sealed_folder,
)
from glassrank.settings import from_plain, modest, to_plain

FORMAT = 1
DEFAULT = Path(__file__).parent / "default"
"""The model that comes with the package."""
CONFIG, WEIGHTS = "config.json", "weights.safetensors"
VOCABULARY, CARD = "vocabulary.txt", "card.md"
_HOLDS = (CONFIG, WEIGHTS, VOCABULARY, CARD, "[0-9]", "[0-9][0-9]")
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
class _Config:
    """What `config.json` holds; an ensemble has members, and nothing of its own."""

    format: int
    model: str
    usage: Usage
    config: dict[str, Any] = field(default_factory=dict)
    words: tuple[int, ...] | None = field(default=None, metadata={"largest": 1 << 30})
    """How many words have a vector, and how long it is."""
    first_stage_weight: bool = False
    members: tuple[str, ...] = ()


def save_model(
    folder: Path,
    model: Ranker,
    usage: Usage,
    vocabulary: list[str],
    card: str,
    vectors: str = "float32",
    layers: str = "float32",
) -> None:
    """`vectors` says how vectors of words or pieces are kept: float32, float16, or int8 with a
    scale for each, which takes a quarter of the room; `layers`, how other matrices are: float32 or
    float16."""
    if model.name == Ensemble.name:
        raise TypeError("an ensemble is made of saved models; write it with save_ensemble")
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in _state(model).items()}
    check_finite(weights)
    check_vocabulary(model, vocabulary)
    config = {
        "format": FORMAT,
        "model": name_of(type(model)),
        "config": to_plain(model.config),
        "usage": to_plain(usage),
        "words": None if model.words is None else list(model.words.embedding.weight.shape),
        "first_stage_weight": model.first_stage_weight is not None,
    }
    with sealed_folder(folder, "model", _HOLDS, beside=CARD) as part:
        write_tensors(smaller(weights, vectors, layers), part / WEIGHTS)
        _write_config(part, config)
        (part / VOCABULARY).write_text("".join(f"{w}\n" for w in vocabulary), "utf-8")
        (part / CARD).write_text(card, "utf-8")


def save_ensemble(
    folder: Path,
    members: Sequence[Path],
    usage: Usage,
    card: str,
    *,
    trusted: Collection[str] = (),
) -> None:
    """`members` are model folders, which are copied as they are: 0, 1, and so on."""
    names = [str(number) for number in range(len(members))]
    config = {"format": FORMAT, "model": Ensemble.name, "members": names, "usage": to_plain(usage)}
    with sealed_folder(folder, "model", _HOLDS, beside=CARD) as part:
        for name, member in zip(names, members, strict=True):
            _copy(member, part / name)
        _write_config(part, config)
        (part / CARD).write_text(card, "utf-8")
        with Folder.open(part) as written:  # what cannot be opened is not written
            load_ensemble(written, from_plain(_Config, config), trusted)


def _copy(member: Path, target: Path) -> None:
    """The files of a model folder, and no other that may lie there."""
    target.mkdir()
    with Folder.open(member) as source, Folder.open(target) as copy:
        for name in (CONFIG, WEIGHTS, VOCABULARY, CARD, MANIFEST):
            if source.kind(name):
                with source.open_file(name) as file, copy.create(name) as new:
                    shutil.copyfileobj(file, new)


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", "utf-8")


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


def load_config(files: SealedFiles) -> _Config:
    """What `config.json` says, as far as it can be without the model's class."""
    with about(files.path, f"{CONFIG} is not what a model has"):
        plain = parse_json(files.read(CONFIG, _CONFIG_BYTES))
        if not isinstance(plain, dict):
            raise InputError(f"{CONFIG} is not a table")
        if type(plain.get("format")) is not int or plain["format"] != FORMAT:
            version = str(plain.get("format"))[:40]
            raise InputError(f"it has model format {version}, this version reads {FORMAT}")
        return modest(from_plain(_Config, plain), CONFIG)


def load_ensemble(folder: Folder, stored: _Config, trusted: Collection[str] = ()) -> SavedModel:
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
    for name, tensor in sorted(_state(model).items()):
        digest.update(name.encode())
        values = tensor.detach().cpu().contiguous().numpy()
        digest.update(values.reshape(-1).view(np.uint8).data)  # without a copy
    return digest.hexdigest()


def _state(model: Ranker) -> dict[str, Tensor]:
    return dict(model.state_dict())
