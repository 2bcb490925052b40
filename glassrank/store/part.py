"""A part: the encoded words of one segment's documents, as plain arrays in a folder.

| array | what it holds |
|---|---|
| `vectors`, or `ids` | one row for each word or piece, document after document |
| `scales` | int8 only: what each row, or each vector in it, is multiplied by |
| `offsets` | where each document's rows begin, and last where they all end |
| `contents` | a hash of each document's text, by which a merged segment finds its rows again |
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassrank.arrays import consecutive, divides, open_arrays
from glassrank.errors import CorruptError
from glassrank.folders import Folder
from glassrank.store.manifest import Layout, PartRecord
from glassrank.store.rows import Rows, array_kinds, is_usable, row_widths
from glassrank.types import Doc


class Part:
    """The open arrays of a part; safe to read from any number of threads and processes."""

    def __init__(self, parent: Folder, record: PartRecord, layout: Layout, *, verify: bool) -> None:
        """`verify` reads every byte, compares checksums, and looks at the numbers."""
        self.folder = parent.path / record.name
        self.record = record
        try:
            with parent.child(record.name) as folder:
                arrays = open_arrays(folder, record.files, array_kinds(layout), deep=verify)
        except FileNotFoundError:
            raise CorruptError(
                f"{self.folder}/ is missing; restore it from a copy or encode the index again"
            ) from None
        self.offsets: NDArray[np.int64] = arrays.pop("offsets")  # (N + 1,)
        self.contents: NDArray[np.uint64] = arrays.pop("contents")  # (N,)
        self._check("offsets", len(self.offsets) == record.docs + 1)
        self._check("contents", len(self.contents) == record.docs)
        self._check("offsets", divides(self.offsets, record.rows))  # compiled code relies on it
        if verify:
            for name, array in arrays.items():
                self._check(name, is_usable(array, layout.dtype))
        self._rows: Rows = {}
        for name, width in row_widths(layout).items():
            self._check(name, len(arrays[name]) == record.rows * width)
            self._rows[name] = arrays[name].reshape(-1, width)
        self.vectors: NDArray[Any] = self._rows[layout.rows_name]  # (T, S)
        self.scales: NDArray[np.float32] | None = arrays.get("scales")
        """(T * V,): where rows are one vector each, (T,)."""

    def _check(self, name: str, true: bool) -> None:
        if not true:
            raise CorruptError(
                f"{self.folder / name}.npy is damaged: its numbers are not those of a store; "
                "remove the store and encode the index again"
            )

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
