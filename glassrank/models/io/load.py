"""Loads models by name: our own folders, folders as others publish them, by their ONNX graph
(`published.py`) or by weights of a known architecture, and `org/name` from the hub.

A folder may come from a stranger: nothing is unpickled, and what fails a check raises an
InputError. `load_named` gives a model of PyTorch's; `load_for_inference` one that ONNX Runtime
computes if its family allows it (`ONNX_MODELS`).
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glassrank.backends.onnx_encoders import Weights
from glassrank.backends.threads import single_thread
from glassrank.errors import InputError, wrap_file_errors
from glassrank.models.families import ONNX_MODELS, import_object
from glassrank.models.hub import find_or_fetch
from glassrank.models.io.model_folder import (
    PACKAGED,
    WEIGHTS,
    SavedModel,
    check_vocabulary,
    load_config,
    load_vocabulary,
    resolve_folder,
)
from glassrank.models.io.weight_files import (
    MOST_BYTES,
    dequantized_header,
    read_arrays,
    read_header,
)
from glassrank.models.model import check_score
from glassrank.models.published import find_graph, load_published
from glassrank.models.published_files import GRAPHS
from glassrank.storage.atomic_folders import MANIFEST, ChecksummedFiles, read_checksummed_folder

if TYPE_CHECKING:
    from glassrank.models.onnx_models import OnnxModel


def load_named(model: str | Path) -> SavedModel:
    """Loads a model for PyTorch: a name of the package (`PACKAGED`), a folder's path,
    `module:Class@FOLDER` for a model whose class is in that module, or `org/name` on the hub."""
    folder, trusted = _locate(model)
    return load_model(folder, trusted=trusted)


def load_for_inference(
    model: str | Path, device: str = "cpu", *, exact: bool = False
) -> SavedModel:
    """For ranking: ONNX Runtime computes it on a CPU if it can, and if not `exact`."""
    folder, trusted = _locate(model)
    if device != "cpu" and find_spec("torch") is None:
        raise InputError(f"the device {device!r} needs PyTorch: pip install 'glassrank[torch]'")
    if device == "cpu" and (graph := published_graph(folder)) is not None:
        return load_published(folder, graph)
    if device == "cpu" and not exact and find_spec("numba") is not None:
        saved = _read(folder, lambda files: load_without_torch(files) or load_files(files, trusted))
        if saved.model.device is None:
            return replace(saved, load_trained=partial(load_model, folder, trusted=trusted))
        return saved
    return load_model(folder, trusted=trusted)


def _locate(model: str | Path) -> tuple[Path, list[str]]:
    folder, trusted = resolve_folder(model)
    if isinstance(model, str):
        folder = find_or_fetch(folder, folder.as_posix())
    return folder, trusted


def load_model(folder: Path, *, trusted: Collection[str] = ()) -> SavedModel:
    """Reads a folder for PyTorch: the old or the new model while another process saves one. Classes
    outside this package are imported only if they are `trusted`, as `module:Class`: a folder cannot
    decide by itself that code is run."""
    return _read(Path(folder), partial(load_files, trusted=trusted))


def _read(folder: Path, load: Callable[[ChecksummedFiles], SavedModel]) -> SavedModel:
    if _is_published(folder):
        return _load_published(folder)
    with single_thread():  # a second thread costs more than it saves on such short steps
        return read_checksummed_folder(
            folder,
            "model",
            load,
            remedy=f"the package has {', '.join(PACKAGED)}; for another, give its folder, or its "
            "ORG/NAME on the hub",
            no_manifest=f"if an older version saved it: python -m glassrank.models.seal {folder}",
        )


def published_graph(folder: Path) -> str | None:
    """The ONNX graph in the folder of a published model, if it has one."""
    return None if (folder / MANIFEST).exists() else find_graph(folder)


def _is_published(folder: Path) -> bool:
    """Whether the folder is as sentence-transformers and others write it, without our manifest."""
    theirs = ("model.safetensors", "pytorch_model.bin", "modules.json", *GRAPHS)
    return not (folder / MANIFEST).exists() and any((folder / name).exists() for name in theirs)


def _load_published(folder: Path) -> SavedModel:
    if not (folder / "model.safetensors").exists() and published_graph(folder) is not None:
        raise InputError(
            f"{folder} holds an ONNX graph, which is computed on a CPU; PyTorch needs its "
            "model.safetensors"
        )
    _need_torch(folder, "transformer")
    from glassrank.models.transformers_folders import load_transformers_folder

    return load_transformers_folder(folder)


def load_files(files: ChecksummedFiles, trusted: Collection[str] = ()) -> SavedModel:
    """Loads a model for PyTorch from checked files."""
    if find_spec("torch") is None:
        _need_torch(files.path, load_config(files).model)
    from glassrank.models.io.torch_files import load_files as load_for_torch

    return load_for_torch(files, trusted)


def _need_torch(folder: Path, kind: str) -> None:
    if find_spec("torch") is None:
        raise InputError(
            f"{folder} holds a {kind}, which needs PyTorch here: pip install 'glassrank[torch]'"
        )


def load_without_torch(files: ChecksummedFiles) -> SavedModel | None:
    """Loads a model for ONNX Runtime from checked files; None where only PyTorch computes it."""
    with wrap_file_errors(files.path, "it does not hold a model that can be used"):
        stored = load_config(files)
        if stored.model not in ONNX_MODELS:
            return None
        family: type[OnnxModel] = import_object(ONNX_MODELS[stored.model])
        config = stored.read_settings(family.info.config_type)
        if not family.can_compute(config):
            return None
        with files.open(WEIGHTS, MOST_BYTES) as file:
            header = read_header(file, files.size(WEIGHTS))
            if "words.ngrams" in header:  # vectors that are made of character n-grams
                return None
            dequantized_header(header)
            arrays = read_arrays(files.read_all(WEIGHTS, file))
        weights = Weights(arrays)
        model = family(config, weights, stored.words)
        if stored.first_stage_weight:
            model.first_stage_weight = np.float32(weights.floats("first_stage_weight"))
        weights.check_all_taken()
        vocabulary = load_vocabulary(files)
        rows = config.encoder.vocabulary if stored.words is None else stored.words[0]
        check_vocabulary(vocabulary, rows, subwords=stored.words is None)
        check_score(model, *stored.usage.short_ids())
        return SavedModel(model, stored.usage, vocabulary)
