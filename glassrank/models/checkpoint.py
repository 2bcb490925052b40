"""A model folder: `config.json`, `weights.safetensors`, `vocabulary.txt`, `card.md`.

Nothing is ever unpickled. A folder appears whole or not at all.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from glassrank.errors import InputError
from glassrank.models import MODELS, Ranker, WordTable
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
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
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
        text = json.dumps(config, indent=2)
        (part / "config.json").write_text(text + "\n", "utf-8")
        (part / "vocabulary.txt").write_text("".join(f"{w}\n" for w in vocabulary), "utf-8")
        (part / "card.md").write_text(card, "utf-8")
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def load_model(folder: Path) -> SavedModel:
    try:
        stored = json.loads((folder / "config.json").read_text("utf-8"))
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
    table = None
    if stored["words"] is not None:
        table = WordTable(torch.zeros(stored["words"]), trained=False)
    model = family.model(from_plain(family.config, stored["config"], "config"), table)
    if stored["first_stage_weight"]:
        model.mix_first_stage()
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    return SavedModel(model.eval(), from_plain(Usage, stored["usage"], "usage"), words)


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
