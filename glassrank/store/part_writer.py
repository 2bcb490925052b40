"""Writes a part, a block of documents at a time, and goes on where a killed writer stopped.

After each block the arrays are made durable, and only then does a small progress file say how far
they are. Whatever a later block had begun to write is behind that, and is cut off.
"""

import shutil
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import DTypeLike, NDArray

from glassrank.arrays import ArrayWriter, FileRecord, Written, sync_folder
from glassrank.errors import CorruptError
from glassrank.store.manifest import Layout, read_checked, write_checked
from glassrank.store.rows import Rows, array_dtypes

PROGRESS = "progress.json"


class PartWriter:
    """Used as a context: leaving it closes the files, and keeps what is there for the next."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder = folder
        self._layout = layout
        self._dtypes: dict[str, DTypeLike] = {
            "offsets": np.int64,
            "contents": np.uint64,
            **array_dtypes(layout),
        }
        self._writers: dict[str, ArrayWriter] = {}

    def __enter__(self) -> "PartWriter":
        try:
            done = read_checked(self.folder / PROGRESS)
            for name, dtype in self._dtypes.items():
                self._open(name, dtype, Written(*done[name]))
        except (FileNotFoundError, CorruptError):  # nothing to go on with
            self._close()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            for name, dtype in self._dtypes.items():
                self._open(name, dtype)
            self._writers["offsets"].append(np.zeros(1, np.int64))
        return self

    def _open(self, name: str, dtype: DTypeLike, done: Written | None = None) -> None:
        self._writers[name] = ArrayWriter(self.folder / f"{name}.npy", dtype, done)

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
        write_checked(self.folder / PROGRESS, written)

    def finish(self) -> dict[str, FileRecord]:
        records = {f"{name}.npy": writer.close() for name, writer in self._writers.items()}
        sync_folder(self.folder)
        sync_folder(self.folder.parent)
        return records

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.abandon()
