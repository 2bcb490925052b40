"""Changes an index: adds, deletes, merges, one writer at a time.

Nothing is visible before `commit`. Whatever a failed or killed writer left behind is not named in
the manifest, and the next writer removes it.
"""

import fcntl
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from glassrank.arrays import ArrayWriter, sync_folder
from glassrank.errors import DuplicateIdError, GlassrankError, InputError
from glassrank.retrieve.manifest import Manifest, read_manifest, write_manifest
from glassrank.retrieve.merge import merge_segments
from glassrank.retrieve.segment import Segment, SegmentRecord
from glassrank.retrieve.segment_builder import SegmentBuilder
from glassrank.text import EnglishAnalyzer
from glassrank.types import Doc

SEGMENT_BYTES = 96 << 20
"""Documents are kept in memory up to this size before they go to disk."""
_LOCK = "write.lock"
_GROWTH = 3


class IndexWriter:
    """One change to an index, from the manifest it starts with to the one it commits."""

    def __init__(self, folder: Path, manifest: Manifest, *, empty: bool = False) -> None:
        """With `empty` the index begins without documents; what is there may be damaged then."""
        self.folder = folder
        self.manifest = manifest
        records = () if empty else manifest.segments
        self._segments = [Segment(folder, record, verify=False) for record in records]
        self._analyzer = EnglishAnalyzer()
        self._written = 0
        self._remove_leftovers()

    def add(self, docs: Iterable[Doc], *, replace_existing: bool = False) -> int:
        """How many documents were added. An id that is already there is an error, or replaced."""
        count = len(self._segments)
        builder = SegmentBuilder(self._analyzer)
        for doc in docs:
            if builder.bytes >= SEGMENT_BYTES:
                self._segments.append(self._open(builder.write(self.folder, self._name())))
                builder = SegmentBuilder(self._analyzer)
            builder.add(doc)
        if len(builder):
            self._segments.append(self._open(builder.write(self.folder, self._name())))
        if len(self._segments) > count + 1:
            self._merge_last(len(self._segments) - count)  # finds an id that came twice
        if len(self._segments) == count:
            return 0
        new = self._segments[-1]
        for segment in self._segments[:-1]:
            numbers = [number for doc_id in new.ids if (number := segment.find(doc_id)) >= 0]
            if numbers and not replace_existing:
                raise DuplicateIdError(segment.ids[numbers[0]])
            if numbers:
                self._delete_from(segment, numbers)
        return len(new)

    def delete(self, doc_ids: Iterable[str]) -> int:
        """How many documents were deleted. An id that is not there is an error."""
        places: dict[int, list[int]] = {}
        unique = dict.fromkeys(doc_ids)
        for doc_id in unique:
            for position, segment in enumerate(self._segments):
                if (number := segment.find(doc_id)) >= 0:
                    places.setdefault(position, []).append(number)
                    break
            else:
                raise InputError(f"no document has the id {doc_id!r}; nothing was deleted")
        for position, numbers in places.items():
            self._delete_from(self._segments[position], numbers)
        return len(unique)

    def _delete_from(self, segment: Segment, numbers: list[int]) -> None:
        deleted = np.union1d(segment.deleted, np.array(numbers, np.uint32)).astype(np.uint32)
        name = f"deleted-{self.manifest.generation + 1}-{len(deleted)}.npy"
        file = ArrayWriter(segment.folder / name, np.uint32)
        file.append(deleted)
        files = {n: r for n, r in segment.record.files.items() if n != segment.record.deleted}
        files[name] = file.close()
        sync_folder(segment.folder)
        record = replace(segment.record, files=files, deleted=name)
        self._segments[self._segments.index(segment)] = self._open(record)

    def merge(self) -> None:
        """All segments into one."""
        if len(self._segments) > 1 or any(len(segment.deleted) for segment in self._segments):
            self._merge_last(len(self._segments))

    def merge_small(self) -> None:
        """Keeps the number of segments logarithmic: the last two join unless far apart in size.

        A document is copied a few times in all, however many additions there are.
        """
        while len(self._segments) > 1:
            *_, before, last = (len(segment) - len(segment.deleted) for segment in self._segments)
            if before > _GROWTH * last:
                return
            self._merge_last(2)

    def _merge_last(self, count: int) -> None:
        merged = merge_segments(self.folder, self._name(), self._segments[-count:])
        self._segments[-count:] = [self._open(merged)] if merged.docs else []

    def commit(self) -> None:
        records = tuple(segment.record for segment in self._segments)
        generation = self.manifest.generation + 1
        write_manifest(self.folder, replace(self.manifest, generation=generation, segments=records))

    def _name(self) -> str:
        """Never used before: names in an older manifest must not lead a reader to other files."""
        self._written += 1
        return f"segment-{self.manifest.generation + 1:06d}-{self._written}"

    def _open(self, record: SegmentRecord) -> Segment:
        return Segment(self.folder, record, verify=False)

    def _remove_leftovers(self) -> None:
        """What the manifest does not name: an earlier writer's, or replaced by this one.

        The one on disk: whether a commit that failed came as far as its rename, only that can tell.
        """
        committed = _committed(self.folder, Manifest(self.manifest.analyzer))
        named = {record.name: record.files for record in committed.segments}
        for path in self.folder.glob("segment-*"):
            if path.name not in named:
                shutil.rmtree(path, ignore_errors=True)
                continue
            for file in path.iterdir():
                if file.name not in named[path.name]:
                    file.unlink(missing_ok=True)


@contextmanager
def changing(folder: Path, *, create: Manifest | None = None) -> Iterator[IndexWriter]:
    """A writer with the index to itself; commits when the work inside is done.

    With `create`, the index begins empty, and what was there before is replaced at the commit.
    """
    is_new = done = False
    try:
        is_new = create is not None and _make(folder)
        with _lock(folder):
            before = read_manifest(folder) if create is None else _committed(folder, create)
            writer = IndexWriter(folder, before, empty=create is not None)
            try:
                yield writer
                writer.commit()
                done = True
            finally:
                # After a commit these are what it replaced, after a failure what it wrote.
                writer._remove_leftovers()
    except OSError as error:
        raise GlassrankError(
            f"cannot write the index {folder}: {error.strerror or error}; "
            "it is as it was before, so make room and try again"
        ) from error
    finally:
        if is_new and not done:
            shutil.rmtree(folder, ignore_errors=True)


def _make(folder: Path) -> bool:
    """Whether it was this process that made the folder: only then may it remove it again."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _committed(folder: Path, otherwise: Manifest) -> Manifest:
    """The manifest on disk, if there is one that can be read."""
    try:
        return read_manifest(folder)
    except GlassrankError:
        return otherwise


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    try:
        file = (folder / _LOCK).open("w")
    except (FileNotFoundError, NotADirectoryError):
        read_manifest(folder)  # says what is wrong
        raise
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GlassrankError(
                f"another process is writing to {folder}; try again when it is done"
            ) from None
        yield
