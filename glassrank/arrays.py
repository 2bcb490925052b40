"""Arrays in files: written once, checksummed, memory-mapped for reading.

Every file is a plain one-dimensional `.npy` that `numpy.load` opens. A folder of them is described
by a manifest (name -> `FileRecord`), so that a cut or flipped file is found and named.
"""

import io
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.errors import CorruptError

_HEADER_BYTES = 128
_READ_BYTES = 1 << 22


class FileRecord(NamedTuple):
    size: int
    crc32: int


class Written(NamedTuple):
    """How far an array has come, as `ArrayWriter.sync` gives it."""

    rows: int
    crc32: int


class ArrayWriter:
    """Appends rows to a `.npy` file whose length is not known beforehand."""

    def __init__(self, path: Path, dtype: DTypeLike, done: Written | None = None) -> None:
        """With `done`, goes on with the file where that says; anything behind it is cut off."""
        self.path = path
        self.dtype = np.dtype(dtype)
        self.rows, self._crc = done or (0, 0)
        self._file: BinaryIO
        if done is None:
            self._file = path.open("wb")
            self._file.write(b"\0" * _HEADER_BYTES)
        else:
            size = _HEADER_BYTES + self.rows * self.dtype.itemsize
            if not path.exists() or path.stat().st_size < size:
                raise CorruptError(f"{path} is damaged: expected {size} bytes or more; remove it")
            self._file = path.open("r+b")
            self._file.truncate(size)
            self._file.seek(size)

    def append(self, rows: NDArray[Any]) -> None:
        data = np.ascontiguousarray(rows, self.dtype)
        self._file.write(data.data)
        self._crc = zlib.crc32(data.data, self._crc)
        self.rows += len(data)

    def sync(self) -> Written:
        """Makes the rows so far durable; a later writer can go on from there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return Written(self.rows, self._crc)

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

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.records: dict[str, FileRecord] = {}
        self._open: dict[str, ArrayWriter] = {}

    def writer(self, name: str, dtype: DTypeLike) -> ArrayWriter:
        writer = ArrayWriter(self.folder / f"{name}.npy", dtype)
        self._open[name] = writer
        return writer

    def write(self, name: str, array: NDArray[Any]) -> None:
        self.writer(name, array.dtype).append(array)
        self.finish(name)

    def finish(self, name: str) -> NDArray[Any]:
        """Closes one array, so that it can be read while others are still written."""
        self.records[f"{name}.npy"] = self._open.pop(name).close()
        return open_array(self.folder / f"{name}.npy")

    def __enter__(self) -> "ArrayFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for name in list(self._open):
                    self.finish(name)
                sync_folder(self.folder)
        finally:
            for writer in self._open.values():
                writer.abandon()


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable, as `fsync` does for a file's content."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_array(path: Path) -> NDArray[Any]:
    """A memory-mapped, read-only view."""
    if path.stat().st_size == _HEADER_BYTES:  # nothing to map
        array: NDArray[Any] = np.load(path)
        array.flags.writeable = False  # as mapped ones: compiled code tells the two apart
        return array
    # As a plain array: numpy's memmap class pays for its bookkeeping at every slice.
    return np.asarray(np.load(path, mmap_mode="r"))


def check_files(folder: Path, records: Mapping[str, FileRecord], *, deep: bool) -> None:
    """Sizes always, every byte when `deep`."""
    for name, record in records.items():
        try:
            size = (folder / name).stat().st_size
        except FileNotFoundError:
            raise CorruptError(
                f"{folder / name} is missing; restore it from a copy or build it again"
            ) from None
        if size != record.size:
            raise CorruptError(
                f"{folder / name} is damaged: expected {record.size} bytes, found {size}; "
                "restore it from a copy or build it again"
            )
    if deep:
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            found = pool.map(lambda name: _checksum(folder / name), records)
            for (name, record), crc32 in zip(records.items(), found, strict=True):
                if crc32 != record.crc32:
                    raise CorruptError(
                        f"{folder / name} is damaged: its checksum is {crc32:08x}, expected "
                        f"{record.crc32:08x}; restore it from a copy or build it again"
                    )


def _checksum(path: Path) -> int:
    """Of the rows first and the header last, the order in which they are known when writing."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
        crc = 0
        while block := file.read(_READ_BYTES):
            crc = zlib.crc32(block, crc)
    return zlib.crc32(header, crc)


class Strings(Sequence[str]):
    """Many strings in two arrays: UTF-8 bytes and where each begins."""

    def __init__(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        self.offsets = offsets  # (n + 1,)
        self.data = data  # (bytes,)
        # Memory views give Python integers and bytes without numpy's cost for each item.
        self._offsets = offsets.data
        self._data = data.data

    def encoded(self, number: int) -> bytes:
        return bytes(self._data[self._offsets[number] : self._offsets[number + 1]])

    def beginning(self, number: int, characters: int) -> str:
        """Its first characters, at the cost of so many, whatever its length."""
        start, stop = self._offsets[number], self._offsets[number + 1]
        part = bytes(self._data[start : min(stop, start + 4 * characters)])
        text = part.decode(errors="ignore" if start + len(part) < stop else "strict")
        return text[:characters]

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self.encoded(number).decode()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self.encoded(number).decode() for number in range(len(self)))

    def find(self, text: str) -> int:
        """Where `text` stands, by bisection: the strings must be sorted by their bytes.

        -1 if it is not there.
        """
        key = text.encode("utf-8", "surrogatepass")  # half a pair is nowhere, and no error
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.encoded(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.encoded(low) == key else -1


def pack(strings: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Offsets and bytes of `Strings`."""
    offsets = np.zeros(len(strings) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)), out=offsets[1:])
    return offsets, np.frombuffer(b"".join(strings), np.uint8)
