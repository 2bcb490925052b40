"""Saves a model, or an ensemble of saved ones, to a folder that appears whole or not at all."""

import json
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from glassrank.folders import Folder
from glassrank.models import Ensemble, Ranker, name_of
from glassrank.models.saved import (
    CARD,
    CONFIG,
    FORMAT,
    VOCABULARY,
    WEIGHTS,
    ModelConfig,
    Usage,
)
from glassrank.models.trained import load_ensemble
from glassrank.models.weights import check_finite, smaller, write_tensors
from glassrank.models.word_tables import check_vocabulary
from glassrank.sealed import MANIFEST, sealed_folder
from glassrank.settings import from_plain, to_plain

_HOLDS = (CONFIG, WEIGHTS, VOCABULARY, CARD, "[0-9]", "[0-9][0-9]")


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
    weights = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
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
            load_ensemble(written, from_plain(ModelConfig, config), trusted)


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
