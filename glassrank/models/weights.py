"""Weights as tensors: held against the model that they are for before anything is allocated.

A model is first built without memory, on torch's meta device, and only as long as it makes no more
tensors than the file can hold. Then names, types and shapes are compared with the file's header,
and only then is the file read: whole, since a file that shrinks while it is mapped would end the
process.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from glassrank.errors import GlassrankError, InputError
from glassrank.models.weight_files import (
    LARGEST,
    MOST_BYTES,
    MOST_NUMBERS,
    TABLES,
    TensorInfo,
    check_header,
    read_header,
)

_CALLS = 100
"""Of torch's functions, to make one tensor and give it its first values: a few dozen."""
_FIRST_VALUES = frozenset(
    "fill_ zero_ normal_ uniform_ zeros_ ones_ constant_ trunc_normal_ kaiming_uniform_ "
    "kaiming_normal_ xavier_uniform_ xavier_normal_ orthogonal_".split()
)
Module = TypeVar("Module", bound=nn.Module)


def read_tensors(file: IO[bytes], size: int) -> dict[str, Tensor]:
    """All of a file of `size` bytes."""
    if size > MOST_BYTES:
        raise InputError(f"the weights have more than {MOST_BYTES:,} bytes, which is not read here")
    file.seek(0)
    read_header(file, size)
    file.seek(0)
    return load(file.read(size))


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """A `.safetensors` file; a full disk is one sentence."""
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:  # what the library makes of a full disk
        raise GlassrankError(f"cannot write {path.name}: {error}") from error


def header_of(tensors: Mapping[str, Tensor]) -> dict[str, TensorInfo]:
    """What the header of a file with these says, as far as it matters."""
    return {
        name: TensorInfo("F32" if tensor.is_floating_point() else "I64", tuple(tensor.shape))
        for name, tensor in tensors.items()
    }


class _Bounded(TorchFunctionMode):
    """Ends what makes tensors without end, and leaves out their first values: there is no memory
    for them, and torch would load its compiler to find that out."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._left = calls

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self._left -= 1
        if self._left < 0:
            raise InputError("its config describes far more layers than there are weights")
        if getattr(function, "__name__", "") in _FIRST_VALUES:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def build(make: Callable[[], Module], header: Mapping[str, TensorInfo]) -> Module:
    """What `make` gives, without values: exactly these tensors, to be filled by `fill`."""
    with torch.device("meta"), _Bounded(_CALLS * (len(header) + 10)):
        module = make()
    expected = module.state_dict()
    check_header(header, header_of(expected))
    if sum(tensor.numel() for tensor in (*expected.values(), *module.buffers())) > MOST_NUMBERS:
        raise InputError(f"it has more than {MOST_NUMBERS:,} weights, which is not read here")
    return module


def fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """The weights of a module that `build` gave; floats become float32 and must be numbers."""
    plain = {n: t.float() if t.is_floating_point() else t.long() for n, t in tensors.items()}
    check_finite(plain)
    module.load_state_dict(plain, assign=True)
    left = [n for n, t in (*module.named_parameters(), *module.named_buffers()) if t.is_meta]
    if left:
        raise TypeError(f"{left[0]} is neither among the weights nor made on a named device")


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuses weights that are no numbers."""
    for name, tensor in tensors.items():
        # A sum shows what is not finite at a fraction of the price; it may also just be too large.
        if tensor.is_floating_point() and not (
            tensor.sum().abs() <= LARGEST or (tensor.abs() <= LARGEST).all()
        ):
            raise GlassrankError(
                f"the weights {name[:100]} are not all finite numbers, or far too large"
            )


def smaller(
    weights: dict[str, Tensor], vectors: str = "float32", layers: str = "float32"
) -> dict[str, Tensor]:
    """Vectors and other matrices as they are kept; `whole_vectors` is the way back."""
    kept = dict(weights)
    for name, tensor in weights.items():
        table, _, kind = name.rpartition(".")
        if kind != "weight" or table not in TABLES:
            if layers == "float16" and tensor.ndim > 1 and tensor.is_floating_point():
                kept[name] = tensor.half()
        elif vectors == "float16":
            kept[name] = tensor.half()
        elif vectors == "int8":
            scales = tensor.abs().amax(1).clamp(min=1e-12) / 127  # (V,)
            kept[name] = (tensor / scales[:, None]).round().to(torch.int8)  # (V, E)
            kept[f"{table}.scales"] = scales
    return kept


def whole_vectors(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """What `smaller` kept, as float32 again."""
    for table in TABLES:
        scales = weights.pop(f"{table}.scales", None)
        if scales is not None:
            name = f"{table}.weight"
            weights[name] = weights[name].float().mul_(scales[:, None])
    return weights
