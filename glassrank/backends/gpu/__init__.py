"""Triton code for a GPU, and devices by name."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from glassrank.errors import InputError

if TYPE_CHECKING:
    import torch


def usable() -> bool:
    """Whether Triton is installed. Without it, PyTorch's plain forms run on a GPU too."""
    return find_spec("triton") is not None


def get_device(name: "str | torch.device") -> "torch.device":
    """A device of PyTorch: `cpu`, `cuda`, `cuda:1`."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device: expected cpu, cuda or cuda:1, found {str(name)!r}") from None
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise InputError(
            f"device: torch finds no GPU here for {str(name)!r}; take cpu, or install a torch that "
            "was built with CUDA"
        )
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        raise InputError(f"device: there is no {name} here; GPUs are counted from 0 to {count - 1}")
    return device
