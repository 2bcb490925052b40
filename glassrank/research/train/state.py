"""Save and load the state of a training run, to resume it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor, nn
from torch.optim import Optimizer, SparseAdam

from glassrank.errors import InputError, wrap_file_errors
from glassrank.models.io.weight_files import check_finite, write_tensors
from glassrank.research.train.config_files import check_same_settings
from glassrank.settings import from_plain
from glassrank.storage.atomic_folders import (
    ChecksummedFiles,
    NoFolderError,
    read_checksummed_folder,
    write_checksummed_folder,
)
from glassrank.storage.checksummed_json import parse_json


@dataclass
class RunProgress:
    """Progress of a run."""

    step: int = 0
    best: float = -1.0
    best_step: int = 0
    best_depth: int = 0
    without_gain: int = 0
    """Number of validations since the best."""
    rate_factor: float = 1.0
    plateau: int = 0
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


_KIND = "training state"
_TENSORS, _PROGRESS = "state.safetensors", "progress.json"
_MOST_BYTES, _MOST_TEXT = 1 << 36, 1 << 28


def save_state(
    folder: Path,
    model: nn.Module,
    optimizers: dict[str, Optimizer],
    progress: RunProgress,
    settings: dict[str, Any],
) -> None:
    """Replace the saved state atomically. `settings` are those that the steps depend on."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, optimizer in optimizers.items():
        for number, values in optimizer.state_dict()["state"].items():
            for key, value in values.items():
                tensors[f"{name}.{number}.{key}"] = torch.as_tensor(value)
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with write_checksummed_folder(folder, _KIND, (_TENSORS, _PROGRESS)) as part:
        write_tensors(plain, part / _TENSORS)
        # JSON has neither NaN nor infinity.
        done = json.loads(json.dumps(asdict(progress)), parse_constant=lambda _: None)
        best = -1.0 if done["best"] is None else done["best"]
        stored = {"settings": settings, "progress": {**done, "best": best}}
        (part / _PROGRESS).write_text(json.dumps(stored), "utf-8")


def load_state(
    folder: Path, model: nn.Module, optimizers: dict[str, Optimizer], settings: dict[str, Any]
) -> RunProgress | None:
    """Load a state; None if there is none. Raise an error if its settings differ."""
    remedy = f"to start again, remove {folder} or set another out"

    def load_files(files: ChecksummedFiles) -> RunProgress:
        with wrap_file_errors(files.path, "it has no usable training state"):
            stored = parse_json(files.read(_PROGRESS, _MOST_TEXT))
            check_same_settings(stored["settings"], settings, str(files.path), remedy)
            tensors = load(files.read(_TENSORS, _MOST_BYTES))
            check_finite(tensors)
            _restore(model, optimizers, tensors)
            return from_plain(RunProgress, stored["progress"], "progress")

    try:
        return read_checksummed_folder(folder, _KIND, load_files, remedy)
    except NoFolderError:
        return None


def _restore(
    model: nn.Module, optimizers: dict[str, Optimizer], tensors: dict[str, Tensor]
) -> None:
    model.load_state_dict(_strip_prefix(tensors, "model."))
    for name, optimizer in optimizers.items():
        shapes = [p.shape for group in optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in _strip_prefix(tensors, f"{name}.").items():
            number, value = key.split(".", 1)
            if tensor.dim() and tensor.shape != shapes[int(number)]:
                raise InputError(f"{key[:100]} does not fit the model")
            state.setdefault(int(number), {})[value] = tensor
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        if isinstance(optimizer, SparseAdam):  # it counts steps in an int, saved as a tensor
            for values in optimizer.state.values():
                values["step"] = int(values["step"])


def _strip_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
