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
from glassrank.models import MODELS, Ensemble, Ranker, SubwordTable, WordTable
from glassrank.settings import from_plain, to_plain
from glassrank.whole_folder import whole_folder

FORMAT = 1
DEFAULT = Path(__file__).parent / "default"
"""The model that comes with the package."""


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

    @property
    def unknown_buckets(self) -> int:
        """How many vectors words share that are not in the vocabulary: those behind its own."""
        model = self.model
        words = next(model.rankers()).words if isinstance(model, Ensemble) else model.words
        if words is None or isinstance(words, SubwordTable):
            return 0
        return len(words.embedding.weight) - len(self.vocabulary)


def save_model(
    folder: Path,
    model: Ranker,
    usage: Usage,
    vocabulary: list[str],
    card: str,
    vectors: str = "float32",
) -> None:
    """`vectors` says how word vectors are kept: float32, float16, or int8 with a scale for each,
    which takes a quarter of the room. All else stays as it is."""
    if isinstance(model, Ensemble):
        raise TypeError("an ensemble is made of saved models; write it with save_ensemble")
    with whole_folder(folder) as part:
        weights = {
            name: tensor.detach().cpu().contiguous() for name, tensor in _state(model).items()
        }
        save_file(_smaller(weights, vectors), part / "weights.safetensors")
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


def model_folder(model: str | Path) -> Path:
    """`default` is the model that comes with the package, anything else a folder's path."""
    return DEFAULT if str(model) == "default" else Path(model)


def load_model(folder: Path) -> SavedModel:
    try:
        stored = json.loads((folder / "config.json").read_text("utf-8"))
        if stored["format"] == FORMAT and stored["model"] == Ensemble.name:
            return _load_ensemble(folder, stored)
        weights = _whole(load_file(folder / "weights.safetensors"))
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


_VECTORS, _SCALES = "words.embedding.weight", "words.embedding.scales"


def _smaller(weights: dict[str, Tensor], vectors: str) -> dict[str, Tensor]:
    """Word vectors as they are kept; `_whole` is the way back."""
    if vectors == "float32" or _VECTORS not in weights:
        return weights
    matrix = weights[_VECTORS]  # (V, E)
    if vectors == "float16":
        return {**weights, _VECTORS: matrix.half()}
    scales = matrix.abs().amax(1).clamp(min=1e-12) / 127  # (V,)
    rounded = (matrix / scales[:, None]).round().to(torch.int8)
    return {**weights, _VECTORS: rounded, _SCALES: scales}


def _whole(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    scales = weights.pop(_SCALES, None)
    if scales is not None:
        weights[_VECTORS] = weights[_VECTORS].float() * scales[:, None]
    return weights


def _empty_table(shape: list[int], weights: dict[str, Tensor]) -> WordTable:
    vectors = torch.zeros(shape)
    if "words.ngrams" not in weights:
        return WordTable(vectors, trained=False)
    layout = (weights[f"words.{name}"] for name in ("offsets", "rows", "ngrams"))
    return SubwordTable(vectors, *layout, trained=False)


def _load_ensemble(folder: Path, stored: dict[str, Any]) -> SavedModel:
    members = [load_model(folder / name) for name in stored["members"]]
    first = members[0]
    if any(
        (member.vocabulary, member.unknown_buckets) != (first.vocabulary, first.unknown_buckets)
        for member in members
    ):
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
