"""Memory-mapped arrays in one-dimensional `.npy` files, written once. A manifest has their sizes
and checksums, so that a truncated or changed file is found and named. Strings, and rows of
different lengths, are two flat arrays.
"""

import io
import mmap
import os
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.errors import CorruptError
from glassrank.storage.checksummed_json import FileRecord
from glassrank.storage.folders import Folder

Ints = NDArray[np.int64]
Uints = NDArray[np.uint32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

_HEADER_BYTES = 128
_READ_BYTES = 1 << 22
_REMEDY = "restore it from a copy or build it again"


class WriteProgress(NamedTuple):
    """How much of an array is durable, from `ArrayWriter.sync`."""

    rows: int
    crc32: int


class ArrayWriter:
    """Appends rows to a `.npy` file whose length is not known in advance."""

    def __init__(
        self, folder: Folder, name: str, dtype: DTypeLike, done: WriteProgress | None = None
    ) -> None:
        """With `done`, continues the file there; what follows in it is cut off."""
        self.dtype = np.dtype(dtype)
        self.rows, self._crc = done or (0, 0)
        self._file: IO[bytes]
        if done is None:
            self._file = folder.create(name)
            self._file.write(b"\0" * _HEADER_BYTES)
        else:
            self._file = self._reopen(folder, name)

    @property
    def _size(self) -> int:
        return _HEADER_BYTES + self.rows * self.dtype.itemsize

    def _reopen(self, folder: Folder, name: str) -> IO[bytes]:
        with ExitStack() as stack:
            try:
                file = stack.enter_context(folder.reopen(name))
                size = os.fstat(file.fileno()).st_size
            except FileNotFoundError:
                size = 0
            if size < self._size:
                path = folder.path / name
                raise CorruptError(
                    f"{path} is damaged: expected {self._size} bytes or more; remove it"
                )
            file.truncate(self._size)
            file.seek(self._size)
            stack.pop_all()
            return file

    def append(self, rows: NDArray[Any]) -> None:
        """Writes values after those that are there."""
        data = np.ascontiguousarray(rows, self.dtype)
        self._file.write(data.data)
        self._crc = zlib.crc32(data.data, self._crc)
        self.rows += len(data)

    def sync(self) -> WriteProgress:
        """Makes the rows so far durable; a later writer can continue from there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return WriteProgress(self.rows, self._crc)

    def close(self) -> FileRecord:
        """Writes the header, which needs the number of rows, and makes the file durable."""
        header = _npy_header(self.dtype, self.rows)
        with self._file:
            self._file.seek(0)
            self._file.write(header)
            self.sync()
        return FileRecord(self._size, zlib.crc32(header, self._crc))

    def discard(self) -> None:
        """Closes the file after a failure; its content is of no use."""
        with suppress(OSError):  # the rest of the buffer may not fit on the disk
            self._file.close()


def replace_array(folder: Folder, name: str, array: NDArray[Any]) -> FileRecord:
    """Writes a whole array, in the place of what a killed writer may have left there."""
    folder.remove(name)
    writer = ArrayWriter(folder, name, array.dtype)
    try:
        writer.append(array)
        return writer.close()
    finally:
        writer.discard()


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
    """Writes the arrays of a new folder; `records` has those that are finished. After a failure
    the folder is left to be removed."""

    def __init__(self, parent: Folder, name: str) -> None:
        self._folder = parent.make_child(name)
        self.path = self._folder.path
        self.records: dict[str, FileRecord] = {}
        self._open: dict[str, ArrayWriter] = {}

    def writer(self, name: str, dtype: DTypeLike) -> ArrayWriter:
        """The writer of a new array."""
        writer = self._open[name] = ArrayWriter(self._folder, f"{name}.npy", dtype)
        return writer

    def write(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Writes a whole array, and opens it for reading."""
        self.writer(name, array.dtype).append(array)
        return self.finish(name)

    def finish(self, name: str) -> NDArray[Any]:
        """Closes an array and opens it for reading, while others are still written."""
        writer = self._open.pop(name)
        self.records[f"{name}.npy"] = record = writer.close()
        return open_array(self._folder, f"{name}.npy", record, [writer.dtype], verify=False)

    def __enter__(self) -> "ArrayFolder":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for name in list(self._open):
                    self.finish(name)
                self._folder.sync()
        finally:
            for writer in self._open.values():
                writer.discard()
            self._folder.close()


ArrayDtypes = Mapping[str, Sequence[DTypeLike]]
"""Names of arrays, and the dtypes that each may have."""


def open_arrays(
    folder: Folder, records: Mapping[str, FileRecord], dtypes: ArrayDtypes, *, verify: bool
) -> dict[str, NDArray[Any]]:
    """The arrays of a folder. Sizes and dtypes are always checked, every byte if `verify`."""

    def load(name: str) -> NDArray[Any]:
        file = f"{name}.npy"
        return open_array(folder, file, records[file], dtypes[name], verify=verify)

    if not verify:
        return {name: load(name) for name in dtypes}
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return dict(zip(dtypes, pool.map(load, dtypes), strict=True))


def open_array(
    folder: Folder, name: str, record: FileRecord, dtypes: Sequence[DTypeLike], *, verify: bool
) -> NDArray[Any]:
    """A memory-mapped, read-only array of one of these dtypes; `verify` reads all its bytes."""
    path = folder.path / name
    try:
        file = folder.open_file(name)
    except FileNotFoundError:
        raise CorruptError(f"{path} is missing; {_REMEDY}") from None

    def damaged(problem: str) -> CorruptError:
        return CorruptError(f"{path} is damaged: {problem}; {_REMEDY}")

    with file:
        size = os.fstat(file.fileno()).st_size
        if size != record.size:
            raise damaged(f"expected {record.size} bytes, found {size}")
        header = file.read(_HEADER_BYTES)
        if verify and (crc32 := _checksum(file, header)) != record.crc32:
            raise damaged(f"its checksum is {crc32:08x}, expected {record.crc32:08x}")
        # The header is compared with the expected one: nothing untrusted is parsed.
        for dtype in [np.dtype(dtype) for dtype in dtypes]:
            rows, rest = divmod(size - _HEADER_BYTES, dtype.itemsize)
            if rest or rows < 0 or header != _npy_header(dtype, rows):
                continue
            if not rows:  # an empty file range cannot be mapped
                return as_readonly(np.empty(0, dtype))
            try:
                mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            except ValueError:  # truncated after its size was read
                raise damaged("it is shorter than it was") from None
            # A plain array: numpy's memmap class pays for its bookkeeping at every slice.
            return np.frombuffer(mapped, dtype, rows, _HEADER_BYTES)
    names = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
    raise damaged(f"expected a one-dimensional array of {names}")


def as_readonly(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: numba compiles a function once more for writeable arrays."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def checksum_array(folder: Folder, name: str) -> FileRecord:
    """The size and checksum of an array file on disk."""
    with folder.open_file(name) as file:
        header = file.read(_HEADER_BYTES)
        return FileRecord(os.fstat(file.fileno()).st_size, _checksum(file, header))


def _checksum(file: IO[bytes], header: bytes) -> int:
    """Of the rows, then the header: a writer knows the header last."""
    crc = 0
    while block := file.read(_READ_BYTES):
        crc = zlib.crc32(block, crc)
    return zlib.crc32(header, crc)


def is_partition(offsets: Ints, size: int) -> bool:
    """Whether these offsets divide `size` values into consecutive rows."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != size:
        return False
    return bool((offsets[:-1] <= offsets[1:]).all())


def concat_ranges(starts: Ints, lengths: Ints) -> Ints:
    """
    >>> concat_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(lengths.sum())


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints  # (n + 1,)
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def row_ids(self) -> Ints:
        """The row of each value."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def pad(self, length: int) -> NDArray[np.int32]:
        """(n, length), truncated and padded with zeros."""
        sizes = np.minimum(np.diff(self.offsets), length)
        out = np.zeros((len(self), length), np.int32)
        places = concat_ranges(self.offsets[:-1], sizes)
        out[np.arange(length) < sizes[:, None]] = self.values[places]
        return out

    @classmethod
    def from_rows(cls, rows: Sequence[NDArray[Any]], dtype: Any) -> "Ragged":
        """Concatenates rows, as values of one dtype."""
        values = np.concatenate(rows).astype(dtype) if rows else np.empty(0, dtype)
        return cls(_offsets(rows), values)


class Strings:
    """Many strings in two arrays: their UTF-8 bytes, and the offset of each."""

    def __init__(self, offsets: Ints, data: NDArray[np.uint8]) -> None:
        self.offsets = offsets  # (n + 1,)
        self.data = data  # (bytes,)
        # Memory views give Python integers and bytes without numpy's cost for each item.
        self._offsets = offsets.data
        self._data = data.data

    def num_bytes(self, index: int) -> int:
        """The size of a string in bytes."""
        return int(self._offsets[index + 1] - self._offsets[index])

    def get_bytes(self, index: int) -> bytes:
        """The UTF-8 bytes of a string."""
        return bytes(self._data[self._offsets[index] : self._offsets[index + 1]])

    def prefix(self, index: int, characters: int) -> str:
        """The first characters of a string; the rest of it is not read."""
        start, stop = self._offsets[index], self._offsets[index + 1]
        part = bytes(self._data[start : min(stop, start + 4 * characters)])
        text = part.decode(errors="ignore" if start + len(part) < stop else "replace")
        return text[:characters]

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.get_bytes(index).decode("utf-8", "replace")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def find(self, text: str) -> int:
        """The index of `text`, or -1, by bisection: the strings must be sorted by their bytes."""
        key = text.encode("utf-8", "surrogatepass")  # half a surrogate pair is not found
        index = bisect_left(range(len(self)), key, key=self.get_bytes)
        return index if index < len(self) and self.get_bytes(index) == key else -1


def pack_strings(strings: Sequence[bytes]) -> Ragged:
    """Offsets and bytes, as `Strings` reads them."""
    return Ragged(_offsets(strings), np.frombuffer(b"".join(strings), np.uint8))


def _offsets(rows: Sequence[Any]) -> Ints:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    return offsets
