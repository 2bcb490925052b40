"""Weights in `.safetensors` files. A header is compared with what the model needs before anything
is allocated; then the file is read, not mapped: a mapped file that shrinks would crash the process.
A model for PyTorch is first built on the meta device, with no more tensors than the file has.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import SafetensorError

from glassrank.backends.onnx_encoders import Quantized, Weight
from glassrank.backends.quantization import from_bfloat16
from glassrank.errors import GlassrankError, InputError
from glassrank.storage.checksummed_json import check_integer, parse_json

if TYPE_CHECKING:
    from torch import Tensor, nn

MOST_BYTES = 1 << 33
MOST_NUMBERS = 1 << 30
LARGEST = 1e12
"""The largest weight: with larger ones, results depend on the order of sums."""
_HEADER_BYTES = 1 << 21
_MOST_TENSORS = 5_000
_FLOATS = {
    name: np.dtype(kind)
    for name, kind in (("F64", "f8"), ("F32", "f4"), ("F16", "f2"), ("BF16", "u2"))
}
_INTEGERS = {name: np.dtype(kind) for name, kind in (("I64", "i8"), ("I32", "i4"), ("I8", "i1"))}
_DTYPES = _FLOATS | _INTEGERS
TABLES = ("words.embedding", "encoder.embeddings.pieces")
"""Vectors of words or subwords: most of a small model, and what needs the fewest bits."""
_SCALES = ".scales"  # scales of an int8 `.weight`, one for each row
_BITS = ("float32", "float16", "int8")
_IN_LAYERS = ".layers."


class TensorInfo(NamedTuple):
    """A header's entry for one tensor."""

    dtype: str
    shape: tuple[int, ...]


def read_header(file: IO[bytes], size: int) -> dict[str, TensorInfo]:
    """Names, types and shapes of the tensors of a `.safetensors` file of `size` bytes."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _HEADER_BYTES):
        raise InputError("the weights have no header; save the model again")
    try:
        plain = parse_json(file.read(length))
        plain.pop("__metadata__", None)
        header = {name: _info(stored) for name, stored in plain.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the header of the weights is damaged: {str(error)[:200]}") from None
    if len(header) > _MOST_TENSORS:
        raise InputError(f"it has more than {_MOST_TENSORS:,} weight tensors, which is not read")
    sizes = (math.prod(info.shape) * _DTYPES[info.dtype].itemsize for info in header.values())
    if 8 + length + sum(sizes) != size:
        raise InputError("the weights are not as long as their header says; save the model again")
    return header


def _info(stored: Mapping[str, Any]) -> TensorInfo:
    dtype = stored["dtype"]
    shape = tuple(check_integer(length, MOST_NUMBERS) for length in stored["shape"])
    if dtype not in _DTYPES or len(shape) > 8:
        raise ValueError(f"type {str(dtype)[:20]} and shape {str(shape)[:80]} are not known")
    return TensorInfo(dtype, shape)


def check_header(header: Mapping[str, TensorInfo], expected: Mapping[str, TensorInfo]) -> None:
    """Raises an InputError unless a file has exactly these weights; any float dtype will do."""
    for name in sorted(expected.keys() ^ header.keys()):
        where = "is not among the weights" if name in expected else "is no weight of this model"
        raise InputError(f"its config and its weights do not belong together: {name[:100]} {where}")
    for name, (kind, shape) in expected.items():
        stored = header[name]
        kinds = _FLOATS if kind in _FLOATS else _INTEGERS
        if shape != stored.shape or stored.dtype not in kinds:
            raise InputError(
                f"its config and its weights do not belong together: {name} should have the shape "
                f"{shape}, found {stored.shape} of type {stored.dtype}"
            )


def dequantized_header(header: dict[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The header as it would be after `dequantize`."""
    restored = dict(header)
    for name, scales in find_scales(header):
        numbers = restored.get(name, TensorInfo("none", ()))
        if numbers.dtype != "I8" or restored.pop(scales) != ("F32", numbers.shape[:1]):
            raise InputError(f"the scales of {name[:100]} do not belong to it")
        restored[name] = TensorInfo("F32", numbers.shape)
    return restored


def find_scales(names: Iterable[str]) -> list[tuple[str, str]]:
    """The quantized weights among these names, and the names of their scales."""
    scales = (name for name in names if name.endswith(_SCALES))
    return [(f"{name.removesuffix(_SCALES)}.weight", name) for name in scales]


def read_arrays(content: bytes) -> dict[str, Weight]:
    """All weights of a file with a checked header: finite float32, or int8 with scales."""
    try:
        stored: Any = safetensors.deserialize(content)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise InputError(f"the weights are damaged: {str(error)[:200]}") from None
    arrays: dict[str, NDArray[Any]] = {}
    for name, facts in stored:
        kind = facts["dtype"]
        array = np.frombuffer(facts["data"], _DTYPES[kind]).reshape(facts["shape"])
        if kind in _FLOATS:
            if kind == "BF16":
                array = from_bfloat16(array)
            with np.errstate(over="ignore"):
                array = array.astype(np.float32, copy=False)
            _check_numbers(name, array)
        arrays[name] = array
    quantized = {
        name: Quantized(arrays.pop(name), arrays.pop(scales))
        for name, scales in find_scales(list(arrays))
    }
    for name, (values, scales) in quantized.items():
        largest = np.maximum(values.max(1), -values.min(1).astype(np.float32))  # of each row
        _check_numbers(name, largest * scales)
    return {**arrays, **quantized}


def _check_numbers(name: str, values: Any) -> None:
    """Of an array or a tensor."""
    # A sum shows what is not finite at a fraction of the price; it may also just be too large.
    if not abs(values.sum()) <= LARGEST and not (abs(values) <= LARGEST).all():
        raise GlassrankError(
            f"the weights {name[:100]} are not all finite numbers, or far too large"
        )


_CALLS = 100
"""Of torch's functions, to make one tensor and give it its first values: a few dozen."""
_FIRST_VALUES = frozenset(
    "fill_ zero_ normal_ uniform_ zeros_ ones_ constant_ trunc_normal_ kaiming_uniform_ "
    "kaiming_normal_ xavier_uniform_ xavier_normal_ orthogonal_".split()
)
Module = TypeVar("Module", bound="nn.Module")


def read_tensors(file: IO[bytes], size: int) -> "dict[str, Tensor]":
    """Reads all tensors of a file of `size` bytes."""
    from safetensors.torch import load

    if size > MOST_BYTES:
        raise InputError(f"the weights have more than {MOST_BYTES:,} bytes, which is not read here")
    file.seek(0)
    read_header(file, size)
    file.seek(0)
    return load(file.read(size))


def write_tensors(tensors: "Mapping[str, Tensor]", path: Path) -> None:
    """Writes a `.safetensors` file."""
    from safetensors.torch import save_file

    path.touch()  # with the rights of any new file: the library gives its own to the owner alone
    rights = path.stat().st_mode
    try:
        save_file(dict(tensors), path)
        path.chmod(rights)
    except SafetensorError as error:  # what the library makes of a full disk
        raise GlassrankError(f"cannot write {path.name}: {error}") from error


def make_header(tensors: "Mapping[str, Tensor]") -> dict[str, TensorInfo]:
    """The header of a file with these tensors."""
    return {
        name: TensorInfo("F32" if tensor.is_floating_point() else "I64", tuple(tensor.shape))
        for name, tensor in tensors.items()
    }


def _bounded(calls: int) -> AbstractContextManager[Any]:
    """Stops code that makes too many tensors, and skips their initial values: on the meta device
    there is no memory for them, and torch would load its compiler to find that out."""
    from torch.overrides import TorchFunctionMode

    class Bounded(TorchFunctionMode):
        left = calls

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.left -= 1
            if self.left < 0:
                raise InputError("its config describes far more layers than there are weights")
            if getattr(function, "__name__", "") in _FIRST_VALUES:
                return args[0] if args else kwargs["tensor"]
            return function(*args, **(kwargs or {}))

    return Bounded()


def build(make: Callable[[], Module], header: Mapping[str, TensorInfo]) -> Module:
    """Calls `make` on the meta device and checks that it has exactly these tensors; see `fill`."""
    import torch

    with torch.device("meta"), _bounded(_CALLS * (len(header) + 10)):
        module = make()
    expected = module.state_dict()
    check_header(header, make_header(expected))
    if sum(tensor.numel() for tensor in (*expected.values(), *module.buffers())) > MOST_NUMBERS:
        raise InputError(f"it has more than {MOST_NUMBERS:,} weights, which is not read here")
    return module


def fill(module: "nn.Module", tensors: "Mapping[str, Tensor]") -> None:
    """Loads weights into a module from `build`; floats become float32 and must be finite."""
    plain = {n: t.float() if t.is_floating_point() else t.long() for n, t in tensors.items()}
    check_finite(plain)
    module.load_state_dict(plain, assign=True)
    left = [n for n, t in (*module.named_parameters(), *module.named_buffers()) if t.is_meta]
    if left:
        raise TypeError(f"{left[0]} is neither among the weights nor made on a named device")


def check_finite(tensors: "Mapping[str, Tensor]") -> None:
    """Raises an error for weights that are not finite, or far too large."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            _check_numbers(name, tensor)


def quantize(
    weights: "dict[str, Tensor]", vectors: str = "float32", layers: str = "float32"
) -> "dict[str, Tensor]":
    """Vectors and other matrices in the dtypes of a file; `dequantize` is the inverse. Only vectors
    and the matrices of layers become int8: others are few."""
    import torch

    for bits in (vectors, layers):
        if bits not in _BITS:
            raise InputError(f"weights are stored in {', '.join(_BITS)}, not in {bits}")
    kept = dict(weights)
    for name, tensor in weights.items():
        part, _, kind = name.rpartition(".")
        if tensor.ndim < 2 or not tensor.is_floating_point():
            continue
        is_table = kind == "weight" and part in TABLES
        bits = vectors if is_table else layers
        if bits == "int8" and (is_table or (kind == "weight" and _IN_LAYERS in name)):
            scales = tensor.abs().amax(1).clamp(min=1e-12) / 127  # (N,)
            kept[name] = (tensor / scales[:, None]).round().to(torch.int8)  # (N, K)
            kept[part + _SCALES] = scales
        elif bits != "float32":
            kept[name] = tensor.half()
    return kept


def dequantize(weights: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """Quantized weights as float32 again."""
    for name, scales in find_scales(list(weights)):
        weights[name] = weights[name].float().mul_(weights.pop(scales)[:, None])
    return weights
