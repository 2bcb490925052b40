"""A model folder: `config.json`, `weights.safetensors`, `vocabulary.txt`, `card.md`.

An ensemble's has its members' folders inside, in the place of weights and vocabulary. Nothing is
ever unpickled. A folder appears whole or not at all.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from glassrank.errors import InputError
from glassrank.files import recover_folder, whole_folder
from glassrank.models import MODELS, Ensemble, Ranker, SubwordTable, WordTable
from glassrank.settings import from_plain, to_plain

FORMAT = 1


@dataclass(frozen=True)
class Usage:
    """How a model is used: what it was trained for, so that nobody has to remember."""

    query_length: int = 30
    doc_length: int = 200
    depth: int | None = None
    """The re-ranking depth that was best on dev queries."""
    first_stage: str = "bm25"
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedModel:
    model: Ranker
    usage: Usage
    vocabulary: list[str]
    """Words by id; the first two are padding and the unknown word."""


def save_model(folder: Path, model: Ranker, usage: Usage, vocabulary: list[str], card: str) -> None:
    if isinstance(model, Ensemble):
        raise TypeError("an ensemble is made of saved models; write it with save_ensemble")
    with whole_folder(folder) as part:
        weights = {
            name: tensor.detach().cpu().contiguous() for name, tensor in _state(model).items()
        }
        save_file(weights, part / "weights.safetensors")
        config = {
            "format": FORMAT,
            "model": model.name,
            "config": to_plain(model.config),
            "usage": to_plain(usage),
            "words": None if model.words is None else list(model.words.embedding.weight.shape),
            "first_stage_weight": model.first_stage_weight is not None,
        }
        _write_config(part, config)
        (part / "vocabulary.txt").write_text("".join(f"{w}\n" for w in vocabulary), "utf-8")
        (part / "card.md").write_text(card, "utf-8")


def save_ensemble(folder: Path, members: Sequence[Path], usage: Usage, card: str) -> None:
    """`members` are model folders, which are copied as they are: 0, 1, and so on."""
    names = [str(number) for number in range(len(members))]
    config = {"format": FORMAT, "model": Ensemble.name, "members": names, "usage": to_plain(usage)}
    with whole_folder(folder) as part:
        for name, member in zip(names, members, strict=True):
            shutil.copytree(member, part / name)
        _write_config(part, config)
        (part / "card.md").write_text(card, "utf-8")
        _load_ensemble(part, config)  # what cannot be opened is not written


def _write_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def load_model(folder: Path) -> SavedModel:
    recover_folder(folder)
    try:
        stored = json.loads((folder / "config.json").read_text("utf-8"))
        if stored["format"] == FORMAT and stored["model"] == Ensemble.name:
            return _load_ensemble(folder, stored)
        weights = load_file(folder / "weights.safetensors")
        words = (folder / "vocabulary.txt").read_text("utf-8").split("\n")[:-1]
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} is not a model folder ({Path(error.filename).name} is missing); "
            "train one with: glassrank train CONFIG.toml"
        ) from None
    if stored["format"] != FORMAT:
        raise InputError(
            f"{folder} has model format {stored['format']}, this version reads {FORMAT}"
        )
    family = MODELS.get(stored["model"])
    if family is None:
        raise InputError(f"{folder} holds a {stored['model']!r}, which this version does not know")
    table = None if stored["words"] is None else _empty_table(stored["words"], weights)
    model = family.model(from_plain(family.config, stored["config"], "config"), table)
    if stored["first_stage_weight"]:
        model.mix_first_stage()
    model.load_state_dict(
        {n: t.float() if t.is_floating_point() else t for n, t in weights.items()}
    )
    return SavedModel(model.eval(), from_plain(Usage, stored["usage"], "usage"), words)


def _empty_table(shape: list[int], weights: dict[str, Tensor]) -> WordTable:
    vectors = torch.zeros(shape)
    if "words.ngrams" not in weights:
        return WordTable(vectors, trained=False)
    layout = (weights[f"words.{name}"] for name in ("offsets", "rows", "ngrams"))
    return SubwordTable(vectors, *layout, trained=False)


def _load_ensemble(folder: Path, stored: dict[str, Any]) -> SavedModel:
    members = [load_model(folder / name) for name in stored["members"]]
    if any(member.vocabulary != members[0].vocabulary for member in members):
        raise InputError(f"{folder}: an ensemble's members must have one vocabulary")
    lengths = [(member.usage.query_length, member.usage.doc_length) for member in members]
    model = Ensemble([member.model for member in members], lengths)
    usage = from_plain(Usage, stored["usage"], "usage")
    return SavedModel(model.eval(), usage, members[0].vocabulary)


def fingerprint(model: Ranker) -> str:
    """The same for the same weights, another for any other: what a document store is tied to."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(to_plain(model.config), sort_keys=True).encode())
    for name, tensor in sorted(_state(model).items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _state(model: Ranker) -> dict[str, Tensor]:
    return dict(model.state_dict())
