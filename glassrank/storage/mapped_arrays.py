"""Arrays in files: written once, checksummed, memory-mapped for reading.

Every file is a plain one-dimensional `.npy` that `numpy.load` opens. A folder of them is described
by a manifest (name -> `FileRecord`), so that a cut or flipped file is found and named.
"""

import io
import mmap
import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.errors import CorruptError
from glassrank.storage.checksummed_json import FileRecord
from glassrank.storage.folders import Folder

_HEADER_BYTES = 128
_READ_BYTES = 1 << 22
_AT_ONCE = 1 << 16
_REMEDY = "restore it from a copy or build it again"


class WriteProgress(NamedTuple):
    """How far an array has come, as `ArrayWriter.sync` gives it."""

    rows: int
    crc32: int


class ArrayWriter:
    """Appends rows to a `.npy` file whose length is not known beforehand."""

    def __init__(
        self, folder: Folder, name: str, dtype: DTypeLike, done: WriteProgress | None = None
    ) -> None:
        """With `done`, goes on with the file where that says; anything behind it is cut off."""
        self.dtype = np.dtype(dtype)
        self.rows, self._crc = done or (0, 0)
        self._file: IO[bytes]
        if done is None:
            self._file = folder.create(name)
            self._file.write(b"\0" * _HEADER_BYTES)
        else:
            self._file = self._reopened(folder, name)

    def _reopened(self, folder: Folder, name: str) -> IO[bytes]:
        size = _HEADER_BYTES + self.rows * self.dtype.itemsize
        with ExitStack() as stack:
            try:
                file = stack.enter_context(folder.reopen(name))
                there = os.fstat(file.fileno()).st_size
            except FileNotFoundError:
                there = 0
            if there < size:
                raise CorruptError(
                    f"{folder.path / name} is damaged: expected {size} bytes or more; remove it"
                )
            file.truncate(size)
            file.seek(size)
            stack.pop_all()
            return file

    def append(self, rows: NDArray[Any]) -> None:
        """More values, behind those that are there."""
        data = np.ascontiguousarray(rows, self.dtype)
        self._file.write(data.data)
        self._crc = zlib.crc32(data.data, self._crc)
        self.rows += len(data)

    def sync(self) -> WriteProgress:
        """Makes the rows so far durable; a later writer can go on from there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return WriteProgress(self.rows, self._crc)

    def close(self) -> FileRecord:
        """Writes the header, which needs the number of rows, and makes the file durable."""
        header = _npy_header(self.dtype, self.rows)
        with self._file:
            self._file.seek(0)
            self._file.write(header)
            self._file.flush()
            os.fsync(self._file.fileno())
        size = _HEADER_BYTES + self.rows * self.dtype.itemsize
        return FileRecord(size, zlib.crc32(header, self._crc))

    def abandon(self) -> None:
        """Closes the file; what is in it is nobody's."""
        with suppress(OSError):  # what is still in the buffer may not fit on the disk
            self._file.close()


def _npy_header(dtype: np.dtype[Any], rows: int) -> bytes:
    buffer = io.BytesIO()
    description = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": (rows,),
    }
    np.lib.format.write_array_header_1_0(buffer, description)
    header = buffer.getvalue()
    assert len(header) == _HEADER_BYTES
    return header


class ArrayFolder:
    """Writes the arrays of one new folder; `records` describes those that are finished.

    Used as a context: when the work inside fails, the files are closed (and left to be removed).
    """

    def __init__(self, parent: Folder, name: str) -> None:
        self._folder = parent.make_child(name)
        self.records: dict[str, FileRecord] = {}
        self._open: dict[str, ArrayWriter] = {}

    @property
    def path(self) -> Path:
        """For messages."""
        return self._folder.path

    def writer(self, name: str, dtype: DTypeLike) -> ArrayWriter:
        """A new array that grows."""
        writer = ArrayWriter(self._folder, f"{name}.npy", dtype)
        self._open[name] = writer
        return writer

    def write(self, name: str, array: NDArray[Any]) -> None:
        """A new array, at once."""
        self.writer(name, array.dtype).append(array)
        self.finish(name)

    def finish(self, name: str) -> NDArray[Any]:
        """Closes one array, so that it can be read while others are still written; gives it."""
        writer = self._open.pop(name)
        self.records[f"{name}.npy"] = record = writer.close()
        return open_array(self._folder, f"{name}.npy", record, [writer.dtype], deep=False)

    def __enter__(self) -> "ArrayFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for name in list(self._open):
                    self.finish(name)
                self._folder.sync()
        finally:
            for writer in self._open.values():
                writer.abandon()
            self._folder.close()


ArrayDtypes = Mapping[str, Sequence[DTypeLike]]
"""Names of arrays, and the dtypes that each may have."""


def open_arrays(
    folder: Folder, records: Mapping[str, FileRecord], kinds: ArrayDtypes, *, deep: bool
) -> dict[str, NDArray[Any]]:
    """The arrays of a folder. Sizes and dtypes are compared always, every byte when `deep`."""

    def array(name: str) -> NDArray[Any]:
        return open_array(folder, f"{name}.npy", records[f"{name}.npy"], kinds[name], deep=deep)

    if not deep:
        return {name: array(name) for name in kinds}
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return dict(zip(kinds, pool.map(array, kinds), strict=True))


def open_array(
    folder: Folder, name: str, record: FileRecord, dtypes: Sequence[DTypeLike], *, deep: bool
) -> NDArray[Any]:
    """A memory-mapped, read-only array of one of these dtypes; all its bytes are read if `deep`."""
    path = folder.path / name
    try:
        file = folder.open_file(name)
    except FileNotFoundError:
        raise CorruptError(f"{path} is missing; {_REMEDY}") from None
    with file:
        size = os.fstat(file.fileno()).st_size
        if size != record.size:
            raise CorruptError(
                f"{path} is damaged: expected {record.size} bytes, found {size}; {_REMEDY}"
            )
        header = file.read(_HEADER_BYTES)
        if deep and (crc32 := _checksum(file, header)) != record.crc32:
            raise CorruptError(
                f"{path} is damaged: its checksum is {crc32:08x}, expected {record.crc32:08x}; "
                f"{_REMEDY}"
            )
        # A header is one of those that a writer would write: there is nothing to be parsed.
        for dtype in [np.dtype(dtype) for dtype in dtypes]:
            rows, rest = divmod(size - _HEADER_BYTES, dtype.itemsize)
            if not rest and rows >= 0 and header == _npy_header(dtype, rows):
                return _mapped(file, dtype, rows, path)
    names = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
    raise CorruptError(f"{path} is damaged: expected one row of {names}; {_REMEDY}")


def _mapped(file: IO[bytes], dtype: np.dtype[Any], rows: int, path: Path) -> NDArray[Any]:
    if not rows:  # nothing to map
        return as_readonly(np.empty(0, dtype))
    size = _HEADER_BYTES + rows * dtype.itemsize
    try:
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except ValueError:  # cut since its size was looked at
        raise CorruptError(f"{path} is damaged: it is shorter than it was; {_REMEDY}") from None
    # As a plain array: numpy's memmap class pays for its bookkeeping at every slice.
    return np.frombuffer(mapped, dtype, rows, _HEADER_BYTES)


def as_readonly(array: NDArray[Any]) -> NDArray[Any]:
    """A view in one piece that may not be written to, as arrays in files are: of a type of its own
    for numba, which would compile once more for the other."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def checksum_array(folder: Folder, name: str) -> FileRecord:
    """Size and checksum of an array's file as it is."""
    with folder.open_file(name) as file:
        header = file.read(_HEADER_BYTES)
        return FileRecord(os.fstat(file.fileno()).st_size, _checksum(file, header))


def _checksum(file: IO[bytes], header: bytes) -> int:
    """Of the rows first and the header last, the order in which they are known when writing."""
    crc = 0
    while block := file.read(_READ_BYTES):
        crc = zlib.crc32(block, crc)
    return zlib.crc32(header, crc)


def is_partition(offsets: NDArray[np.int64], size: int) -> bool:
    """Whether these are the ends of rows, one after another, that make up `size` values."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != size:
        return False
    starts, ends = offsets[:-1], offsets[1:]
    parts = (slice(i, i + _AT_ONCE) for i in range(0, len(starts), _AT_ONCE))
    return all((starts[part] <= ends[part]).all() for part in parts)


def concat_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of many runs of rows, one run after another.

    >>> concat_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(lengths.sum())
