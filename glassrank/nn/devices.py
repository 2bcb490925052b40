"""Where a model runs, by name."""

import torch

from glassrank.errors import InputError


def device_named(name: str | torch.device) -> torch.device:
    """`cpu`, `cuda`, `cuda:1`: what torch can use here."""
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
