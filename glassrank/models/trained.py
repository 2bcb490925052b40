"""A model folder as a model of PyTorch's: what trains, what runs on a GPU, and any family."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from safetensors.torch import load

from glassrank.errors import InputError
from glassrank.folders import Folder
from glassrank.models import is_outside
from glassrank.models.contract import Ranker, TokenBatch, WordTable
from glassrank.models.ensemble import Ensemble
from glassrank.models.families import MODELS, find_family
from glassrank.models.saved import (
    WEIGHTS,
    ModelConfig,
    SavedModel,
    Usage,
    load_config,
    load_vocabulary,
)
from glassrank.models.weight_files import MOST_BYTES, TensorInfo, read_header, whole_header
from glassrank.models.weights import build, fill, whole_vectors
from glassrank.models.word_tables import SubwordTable, check_vocabulary
from glassrank.sealed import SealedFiles, about, sealed_files
from glassrank.settings import from_plain, modest

_MOST_MEMBERS = 100
_TRIED = 8


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
