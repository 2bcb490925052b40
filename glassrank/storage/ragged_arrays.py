"""Rows of different lengths in two arrays, as they stand in files: numbers, and strings."""

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
        """The row that each value stands in."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def pad(self, length: int) -> NDArray[np.int32]:
        """(n, length), cut and filled with zeros."""
        sizes = np.minimum(np.diff(self.offsets), length)
        out = np.zeros((len(self), length), np.int32)
        mask = np.arange(length) < sizes[:, None]
        starts = np.repeat(self.offsets[:-1], sizes)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        out[mask] = self.values[starts + within]
        return out

    @classmethod
    def from_rows(cls, rows: list[NDArray[Any]], dtype: Any) -> "Ragged":
        """Rows one after another, as values of one type."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        values = np.concatenate(rows).astype(dtype) if rows else np.empty(0, dtype)
        return cls(offsets, values)


class Strings(Sequence[str]):
    """Many strings in two arrays: UTF-8 bytes and where each begins."""

    def __init__(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None:
        self.offsets = offsets  # (n + 1,)
        self.data = data  # (bytes,)
        # Memory views give Python integers and bytes without numpy's cost for each item.
        self._offsets = offsets.data
        self._data = data.data

    def num_bytes(self, number: int) -> int:
        """One string's number of bytes."""
        return int(self._offsets[number + 1] - self._offsets[number])

    def get_bytes(self, number: int) -> bytes:
        """One string's bytes."""
        return bytes(self._data[self._offsets[number] : self._offsets[number + 1]])

    def prefix(self, number: int, characters: int) -> str:
        """Its first characters, at the cost of so many, whatever its length."""
        start, stop = self._offsets[number], self._offsets[number + 1]
        part = bytes(self._data[start : min(stop, start + 4 * characters)])
        text = part.decode(errors="ignore" if start + len(part) < stop else "replace")
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
        return self.get_bytes(number).decode("utf-8", "replace")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def find(self, text: str) -> int:
        """Where `text` stands, by bisection: the strings must be sorted by their bytes.

        -1 if it is not there.
        """
        key = text.encode("utf-8", "surrogatepass")  # half a pair is nowhere, and no error
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.get_bytes(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.get_bytes(low) == key else -1


def pack_strings(strings: Sequence[bytes]) -> Ragged:
    """As `Strings` reads them: offsets, and bytes as values."""
    offsets = np.zeros(len(strings) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)), out=offsets[1:])
    return Ragged(offsets, np.frombuffer(b"".join(strings), np.uint8))
