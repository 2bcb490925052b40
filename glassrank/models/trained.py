"""A model folder with a model of PyTorch's, which trains, runs on a GPU, and is of any family:
loaded, and saved, alone or as an ensemble, to a folder that appears whole or not at all."""

import json
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from glassrank.errors import InputError, wrap_file_errors
from glassrank.models import is_outside
from glassrank.models.contract import Ranker, TokenBatch, WordTable
from glassrank.models.ensemble import Ensemble
from glassrank.models.families import MODELS, find_family, name_of
from glassrank.models.saved import (
    CARD,
    CONFIG,
    FORMAT,
    VOCABULARY,
    WEIGHTS,
    ModelConfig,
    SavedModel,
    Usage,
    load_config,
    load_vocabulary,
)
from glassrank.models.weight_files import (
    MOST_BYTES,
    TensorInfo,
    build,
    check_finite,
    fill,
    read_header,
    smaller,
    whole_header,
    whole_weights,
    write_tensors,
)
from glassrank.models.word_tables import SubwordTable, check_vocabulary
from glassrank.settings import check_bounds, from_plain, to_plain
from glassrank.storage.atomic_folders import (
    MANIFEST,
    ChecksummedFiles,
    open_checksummed_files,
    write_checksummed_folder,
)
from glassrank.storage.folders import Folder

_MOST_MEMBERS = 100
_TRIED = 8


def load_files(files: ChecksummedFiles, trusted: Collection[str] = ()) -> SavedModel:
    """The model whose files these are, checksums looked at."""
    with wrap_file_errors(files.path, "it does not hold a model that can be used"):
        stored = load_config(files)
        if stored.model == Ensemble.name:
            return load_ensemble(files.folder, stored, trusted)
        if stored.model not in MODELS and not is_outside(stored.model):
            raise InputError(f"it holds a {stored.model!r}, which this version does not know")
        family = find_family(stored.model, trusted)
        config: Any = check_bounds(
            from_plain(family.config_type, stored.config, "config"), "config"
        )
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
        fill(model, whole_weights(tensors))
        if isinstance(model.words, SubwordTable):
            model.words.check()
        words = load_vocabulary(files)
        check_vocabulary(model, words)
        _try_out(model.eval(), stored.usage)
        return SavedModel(model, stored.usage, words)


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
        files = open_checksummed_files(inner, "model", "make the ensemble again")
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
    scale for each, which takes a quarter of the room; `layers`, how other matrices are: float32,
    float16, or int8 for those of layers, by which queries are encoded soonest."""
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
    with write_checksummed_folder(folder, "model", _HOLDS, beside=CARD) as part:
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
    with write_checksummed_folder(folder, "model", _HOLDS, beside=CARD) as part:
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
