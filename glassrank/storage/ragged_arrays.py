"""Rows of different lengths in two flat arrays, as files hold them: numbers, and strings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`."""

    offsets: NDArray[np.int64]  # (n + 1,)
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def row_ids(self) -> NDArray[np.int64]:
        """The row of each value."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def pad(self, length: int) -> NDArray[np.int32]:
        """(n, length), truncated and padded with zeros."""
        sizes = np.minimum(np.diff(self.offsets), length)
        out = np.zeros((len(self), length), np.int32)
        starts = np.repeat(self.offsets[:-1], sizes)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[np.arange(length) < sizes[:, None]] = self.values[starts + within]
        return out

    @classmethod
    def from_rows(cls, rows: Sequence[NDArray[Any]], dtype: Any) -> "Ragged":
        """Concatenates rows, as values of one dtype."""
        values = np.concatenate(rows).astype(dtype) if rows else np.empty(0, dtype)
        return cls(_offsets(rows), values)


class Strings(Sequence[str]):
    """Many strings in two arrays: their UTF-8 bytes, and the offset of each."""

    def __init__(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
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

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
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
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.get_bytes(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.get_bytes(low) == key else -1


def pack_strings(strings: Sequence[bytes]) -> Ragged:
    """Offsets and bytes, as `Strings` reads them."""
    return Ragged(_offsets(strings), np.frombuffer(b"".join(strings), np.uint8))


def _offsets(rows: Sequence[Any]) -> NDArray[np.int64]:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    return offsets
