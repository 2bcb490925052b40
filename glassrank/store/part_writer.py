"""Writes a part, a block of documents at a time, and goes on where a killed writer stopped.

After each block the arrays are made durable, and only then does a small progress file say how far
they are. Whatever a later block had begun to write is behind that, and is cut off.
"""

from types import TracebackType

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.arrays import ArrayWriter, Written
from glassrank.checked import FileRecord, read_checked, whole, write_checked
from glassrank.errors import CorruptError
from glassrank.folders import Folder
from glassrank.store.manifest import IDS, Layout
from glassrank.store.rows import Rows, array_kinds, row_widths

PROGRESS = "progress.json"
_FILES = {f"{name}.npy" for name in ("offsets", "contents", "vectors", "scales", IDS)}


def is_part_file(name: str) -> bool:
    """Whether a part's folder may hold it."""
    return name == PROGRESS or name in _FILES


class PartWriter:
    """Used as a context: leaving it closes the files, and keeps what is there for the next."""

    def __init__(self, parent: Folder, name: str, layout: Layout) -> None:
        self._parent = parent
        self._name = name
        self._layout = layout
        self._dtypes = {name: dtype for name, (dtype,) in array_kinds(layout).items()}
        self._writers: dict[str, ArrayWriter] = {}

    def __enter__(self) -> "PartWriter":
        self._folder = self._parent.make_child(self._name, exist_ok=True)
        try:
            try:
                done = self._done()
                for name, dtype in self._dtypes.items():
                    self._open(name, dtype, done[name])
            except (FileNotFoundError, CorruptError):  # nothing to go on with
                self._close()
                self._parent.remove_child(self._name, is_part_file)
                self._folder = self._parent.make_child(self._name, exist_ok=True)
                for name, dtype in self._dtypes.items():
                    self._open(name, dtype)
                self._writers["offsets"].append(np.zeros(1, np.int64))
        except BaseException:
            self._close()
            raise
        return self

    def _done(self) -> dict[str, Written]:
        """How far a killed writer came."""
        stored = read_checked(self._folder, PROGRESS, "remove it")
        try:
            done = {n: Written(whole(stored[n][0]), whole(stored[n][1])) for n in self._dtypes}
        except (ValueError, KeyError, TypeError, IndexError):
            raise CorruptError(f"{self._folder.path / PROGRESS} is damaged; remove it") from None
        widths = row_widths(self._layout)
        rows = {done[name].rows / width for name, width in widths.items()}
        if done["offsets"].rows != done["contents"].rows + 1 or len(rows) > 1:
            raise CorruptError(f"{self._folder.path / PROGRESS} is damaged; remove it")
        return done

    def _open(self, name: str, dtype: DTypeLike, done: Written | None = None) -> None:
        self._writers[name] = ArrayWriter(self._folder, f"{name}.npy", dtype, done)

    @property
    def docs(self) -> int:
        """How many documents are written."""
        return self._writers["contents"].rows

    @property
    def rows(self) -> int:
        return self._writers[self._layout.rows_name].rows // self._layout.stride

    def append(self, contents: NDArray[np.uint64], lengths: NDArray[np.int64], rows: Rows) -> None:
        """The next documents: hashes of their texts, how many rows each has, and the rows."""
        self._writers["offsets"].append(self.rows + np.cumsum(lengths))
        self._writers["contents"].append(contents)
        for name, array in rows.items():
            self._writers[name].append(array.reshape(-1))
        written = {name: writer.sync() for name, writer in self._writers.items()}
        write_checked(self._folder, PROGRESS, written)

    def finish(self) -> dict[str, FileRecord]:
        records = {f"{name}.npy": writer.close() for name, writer in self._writers.items()}
        self._folder.sync()
        self._parent.sync()
        return records

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.abandon()
        self._writers.clear()
        self._folder.close()
