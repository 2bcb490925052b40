"""A part: the encoded words of one segment's documents, as plain arrays in a folder.

| array | what it holds |
|---|---|
| `vectors`, or `ids` | one row for each word or piece, document after document |
| `scales` | int8 only: what each row, or each vector in it, is multiplied by |
| `offsets` | where each document's rows begin, and last where they all end |
| `contents` | a hash of each document's text, by which a merged segment finds its rows again |
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.arrays import check_files, open_array
from glassrank.store.manifest import Layout, PartRecord
from glassrank.store.rows import Rows, array_dtypes, consecutive
from glassrank.types import Doc


class Part:
    """The open arrays of a part; safe to read from any number of threads and processes."""

    def __init__(self, folder: Path, record: PartRecord, layout: Layout, *, verify: bool) -> None:
        self.folder = folder / record.name
        self.record = record
        check_files(self.folder, record.files, deep=verify)
        self.offsets: NDArray[np.int64] = self._array("offsets")  # (N + 1,)
        self.contents: NDArray[np.uint64] = self._array("contents")  # (N,)
        self._rows: Rows = {name: self._array(name) for name in array_dtypes(layout)}
        self.vectors: NDArray[Any] = self._rows[layout.rows_name].reshape(-1, layout.stride)
        self._rows[layout.rows_name] = self.vectors  # (T, S)
        self.scales: NDArray[np.float32] | None = None
        if "scales" in self._rows:
            self.scales = self._rows["scales"]  # (T * V,): where rows are one vector each, (T,)
            self._rows["scales"] = self.scales.reshape(-1, layout.scales)  # (T, V)

    def _array(self, name: str) -> NDArray[Any]:
        return open_array(self.folder / f"{name}.npy")

    @property
    def ids(self) -> NDArray[np.int32]:
        """(T,) word ids, in a store that keeps those: its rows have one value."""
        return self.vectors[:, 0]

    def __len__(self) -> int:
        """Documents."""
        return self.record.docs

    def rows(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Rows:
        """A copy of some documents' rows."""
        places = consecutive(starts, lengths)
        return {name: array[places] for name, array in self._rows.items()}

    def padded_rows(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Rows:
        """The same as (B, L, ...), zeros after the end of each document; L is at least 1.

        One document after another: its rows lie together, and are copied as they are.
        """
        shape = len(starts), max(1, int(lengths.max(initial=0)))
        copies = {n: np.zeros((*shape, *a.shape[1:]), a.dtype) for n, a in self._rows.items()}
        for number, (start, length) in enumerate(
            zip(starts.tolist(), lengths.tolist(), strict=True)
        ):
            for name, array in self._rows.items():
                copies[name][number, :length] = array[start : start + length]
        return copies


def text_of(doc: Doc) -> str:
    """What the models read of a document."""
    return f"{doc.title} {doc.text}" if doc.title else doc.text


def content_of(text: str) -> int:
    """64 bits that stand for a text: among ten million texts, two agree once in 370,000 times."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
