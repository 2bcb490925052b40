"""Fast forms for a GPU, in Triton: each file names the plain form it must equal. And which devices
a model may run on, by name."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from glassrank.errors import InputError

if TYPE_CHECKING:
    import torch


def usable() -> bool:
    """Whether Triton is here. Where it is not, the plain forms serve, on a GPU too."""
    return find_spec("triton") is not None


def get_device(name: "str | torch.device") -> "torch.device":
    """`cpu`, `cuda`, `cuda:1`: what torch can use here."""
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
