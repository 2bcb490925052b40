"""Weights in a file, as arrays: what its header says is held against what a model needs before
anything is allocated, and then the file is read whole, since one that shrinks while it is mapped
would end the process. `weights.py` has the same for models of PyTorch's."""

import math
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import SafetensorError

from glassrank.checked import parse_json, whole
from glassrank.errors import GlassrankError, InputError
from glassrank.nn.few_bits import values_of

MOST_BYTES = 1 << 33
MOST_NUMBERS = 1 << 30
LARGEST = 1e12
"""Of a weight: with larger ones, what a layer gives depends on how it is computed."""
_HEADER_BYTES = 1 << 21
_MOST_TENSORS = 5_000
_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_INTEGERS = {"I64": 8, "I32": 4, "I8": 1}

_DTYPES: dict[str, type[np.generic]] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "I64": np.int64,
    "I32": np.int32,
    "I8": np.int8,
}
TABLES = ("words.embedding", "encoder.embeddings.pieces")
"""Vectors of words or pieces, which are most of a small model and need the fewest bits."""


class TensorInfo(NamedTuple):
    """What a header says of one tensor."""

    dtype: str
    shape: tuple[int, ...]


def read_header(file: IO[bytes], size: int) -> dict[str, TensorInfo]:
    """Names, types and shapes of a `.safetensors` file of `size` bytes, which they account for."""
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
    widths = _FLOATS | _INTEGERS
    if 8 + length + sum(math.prod(i.shape) * widths[i.dtype] for i in header.values()) != size:
        raise InputError("the weights are not as long as their header says; save the model again")
    return header


def _info(stored: Mapping[str, Any]) -> TensorInfo:
    dtype, shape = (
        stored["dtype"],
        tuple(whole(length, MOST_NUMBERS) for length in stored["shape"]),
    )
    if dtype not in _FLOATS | _INTEGERS or len(shape) > 8:
        raise ValueError(f"type {str(dtype)[:20]} and shape {str(shape)[:80]} are not known")
    return TensorInfo(dtype, shape)


def check_header(header: Mapping[str, TensorInfo], expected: Mapping[str, TensorInfo]) -> None:
    """Whether a file has these weights and no others; floats of any width are floats."""
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


def whole_header(header: dict[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The header of what `whole_vectors` gives."""
    whole = dict(header)
    for table in TABLES:
        scales, vectors = whole.pop(f"{table}.scales", None), whole.get(f"{table}.weight")
        if scales is None:
            continue
        if vectors is None or vectors.dtype != "I8" or scales != ("F32", vectors.shape[:1]):
            raise InputError("the scales of its word vectors do not belong to them")
        whole[f"{table}.weight"] = TensorInfo("F32", vectors.shape)
    return whole


def arrays_in(content: bytes) -> dict[str, NDArray[Any]]:
    """All weights of a file whose header was checked: floats as float32, which must be numbers,
    but for vectors in int8, which are left as they are beside their scales."""
    try:
        stored: Any = safetensors.deserialize(content)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise InputError(f"the weights are damaged: {str(error)[:200]}") from None
    arrays: dict[str, NDArray[Any]] = {}
    for name, facts in stored:
        kind = facts["dtype"]
        array = np.frombuffer(facts["data"], _DTYPES[kind]).reshape(facts["shape"])
        if kind in _FLOATS:
            with np.errstate(over="ignore"):
                array = values_of(array) if kind == "BF16" else array.astype(np.float32, copy=False)
            if not abs(array.sum()) <= LARGEST and not (np.abs(array) <= LARGEST).all():
                raise GlassrankError(
                    f"the weights {name[:100]} are not all finite numbers, or far too large"
                )
        arrays[name] = array
    return arrays
