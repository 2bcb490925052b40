"""An index with stores in every state of the work, and what a finished store must look like."""

import os
import shutil
from pathlib import Path

import torch
from small_store import small_saved, some_docs

from glassrank.embeddings import Store, encode, encode_index
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.io.model_folder import SavedModel


def prepare() -> SavedModel:
    """A model, and blocks so small that there are many; one thread, as forked children need, and
    no waiting for the disk: a killed process loses nothing that it has written."""
    torch.set_num_threads(1)
    os.fsync = lambda handle: None
    encode.BLOCK_DOCS = 16
    return small_saved("tk")


class New:
    """An index of two segments, and no store."""

    dtype = "int8"

    def __init__(self, saved: SavedModel) -> None:
        self.saved = saved

    def begin(self, folder: Path) -> None:
        index = Index.build(some_docs(1, [f"a{i:02}" for i in range(70)]), folder)
        index.add(some_docs(2, [f"b{i:02}" for i in range(18)]))
        assert len(index.snapshot.segments) == 2

    def work(self, folder: Path) -> None:
        path = folder / "stores" / "s"
        encode_index(Index(folder), self.saved, path, self.dtype, graph=True)

    def finished(self, start: Path) -> dict[str, bytes]:
        """What work without interruption makes of an index, which is left as it is."""
        copy = start.with_name("finished")
        shutil.copytree(start, copy)
        self.work(copy)
        found = contents(copy)
        shutil.rmtree(copy)
        return found

    def assert_unbroken(self, folder: Path) -> None:
        """A store that was interrupted opens with what it has; one that never began is none."""
        try:
            Store.open(folder / "stores" / "s", self.saved.model)
        except InputError as error:
            assert "is not a document store" in str(error)


class Changed(New):
    """A store whose documents have moved to two other segments, with new ones among them."""

    dtype = "float32"  # where a document that is encoded once more seldom has the same bits

    def begin(self, folder: Path) -> None:
        super().begin(folder)
        self.work(folder)
        old = list(Index(folder).docs())
        new = some_docs(3, [f"c{i:02}" for i in range(24)])
        docs = [*old[::2], *new[:16], *old[1::2], *new[16:]]
        index = Index.build(docs[:86], folder, overwrite=True)
        index.add(docs[86:])
        assert len(index.snapshot.segments) == 2


STARTS = {"new": New, "changed": Changed}


def contents(folder: Path) -> dict[str, bytes]:
    """Of the store, but for the lock."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted((folder / "stores" / "s").rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }
