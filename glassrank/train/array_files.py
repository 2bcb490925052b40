"""Arrays of a sealed folder: one plain `.npy` file each, of a type that the reader expects."""

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from glassrank.errors import InputError
from glassrank.sealed import SealedFiles

_MOST_BYTES = 1 << 40


def write_array(folder: Path, name: str, array: NDArray[Any], dtype: DTypeLike) -> None:
    np.save(folder / f"{name}.npy", np.ascontiguousarray(array, dtype))


def read_array(files: SealedFiles, name: str, dtype: DTypeLike, axes: int = 1) -> NDArray[Any]:
    """Read into memory, at most as large as the file is."""
    path = files.path / f"{name}.npy"
    with files.open(path.name, _MOST_BYTES) as file:
        try:
            version = npy.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"version {version}")
            shape, by_columns, found = npy.read_array_header_1_0(file)
        except (ValueError, SyntaxError, RecursionError, MemoryError, EOFError) as error:
            raise InputError(f"{path} is no array: {str(error)[:100]}") from None
        size = files.size(path.name) - file.tell()
        if (
            found != np.dtype(dtype)
            or len(shape) != axes
            or by_columns
            or min(shape, default=0) < 0
            or math.prod(shape) * found.itemsize != size
        ):
            raise InputError(
                f"{path} should have {axes} axes of {np.dtype(dtype)}, found {shape} of {found}"
            )
        array = np.empty(shape, found)
        content = array.reshape(-1).view(np.uint8).data
        start = file.tell()
        file.seek(0)
        header = file.read(start)
        file.readinto(content)  # type: ignore[attr-defined]
        files.check(path.name, zlib.crc32(content, zlib.crc32(header)))
    return array
