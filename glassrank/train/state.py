"""A training run's state on disk, as tensors and JSON: a run that was killed goes on from here."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from glassrank.whole_folder import whole_folder


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0
    best: float = -1.0
    best_step: int = 0
    best_depth: int = 0
    without_gain: int = 0
    """Validations since the best one."""
    rate_factor: float = 1.0
    plateau: int = 0
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


def save_state(
    folder: Path, model: nn.Module, optimizers: dict[str, Optimizer], progress: Progress
) -> None:
    """Written beside and moved into place: there is always one whole state."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, optimizer in optimizers.items():
        for number, values in optimizer.state_dict()["state"].items():
            for key, value in values.items():
                tensors[f"{name}.{number}.{key}"] = torch.as_tensor(value)
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with whole_folder(folder) as part:
        save_file(plain, part / "state.safetensors")
        with (part / "progress.json").open("w") as file:
            json.dump(asdict(progress), file)
            file.flush()
            os.fsync(file.fileno())


def load_state(folder: Path, model: nn.Module, optimizers: dict[str, Optimizer]) -> Progress | None:
    """None if there is nothing to go on from."""
    if not folder.exists():
        return None
    tensors = load_file(folder / "state.safetensors")
    model.load_state_dict(_under(tensors, "model."))
    for name, optimizer in optimizers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in _under(tensors, f"{name}.").items():
            number, value = key.split(".", 1)
            state.setdefault(int(number), {})[value] = tensor
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        _plain_steps(optimizer)
    return Progress(**json.loads((folder / "progress.json").read_text("utf-8")))


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _plain_steps(optimizer: Optimizer) -> None:
    """SparseAdam counts its steps in a Python number, which was kept as a tensor."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        for values in optimizer.state.values():
            values["step"] = int(values["step"])
