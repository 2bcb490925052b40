"""Changes an index: adds, deletes and merges, one writer at a time.

Nothing is visible before `commit`. The manifest does not name what a failed or killed writer left
behind, and the next writer removes it.
"""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from glassrank.errors import DuplicateIdError, GlassrankError, InputError, disk_error
from glassrank.index.segment import Segment, SegmentRecord, is_segment_file, is_segment_name
from glassrank.index.segment_builder import SegmentBuilder, merge_segments
from glassrank.index.snapshot import (
    MANIFEST_FILE,
    Manifest,
    load_manifest,
    open_index,
    write_manifest,
)
from glassrank.storage.folders import LOCK, Folder, NotDurableError
from glassrank.storage.mapped_arrays import replace_array
from glassrank.text.analysis import Analyzer
from glassrank.text.languages import get_analyzer_by_name
from glassrank.types import Doc

SEGMENT_BYTES = 96 << 20  # documents stay in memory up to this size, then they are written
UNCHANGED = "the index is as it was before"
_GROWTH = 3


class IndexWriter:
    """One change to an index, from the manifest it starts with to the one it commits."""

    def __init__(self, folder: Folder, manifest: Manifest, *, empty: bool = False) -> None:
        """With `empty` the index starts without documents, even if the old ones are damaged."""
        self.folder = folder
        self.manifest = manifest
        records = () if empty else manifest.segments
        self._segments = [Segment(folder, record, verify=False) for record in records]
        self._analyzer = get_analyzer_by_name(manifest.analyzer)
        self._id = secrets.token_hex(16)
        self._written = 0

    def add(self, docs: Iterable[Doc], *, replace_existing: bool = False) -> int:
        """Adds documents and returns their number. An existing id is an error, or replaced."""
        count = len(self._segments)
        builder = SegmentBuilder(self._analyzer)
        for doc in docs:
            if builder.bytes >= SEGMENT_BYTES:
                self._write(builder)
                builder = SegmentBuilder(self._analyzer)
            builder.add(doc)
        if len(builder):
            self._write(builder)
        if len(self._segments) > count + 1:
            self._merge_last(len(self._segments) - count)  # finds duplicate ids
        if len(self._segments) == count:
            return 0
        new = self._segments[-1]
        for segment in self._segments[:-1]:
            numbers = [number for doc_id in new.ids if (number := segment.find(doc_id)) >= 0]
            if numbers and not replace_existing:
                raise DuplicateIdError(segment.ids[numbers[0]], indexed=True)
            if numbers:
                self._delete_from(segment, numbers)
        return len(new)

    def _write(self, builder: SegmentBuilder) -> None:
        self._segments.append(self._open(builder.write(self.folder, self._name())))
        self._analyzer = self._analyzer.with_languages(builder.languages)

    def adopt(self, other: Folder, record: SegmentRecord, analyzer: Analyzer) -> None:
        """Moves a segment here from an index with this analyzer, on the same disk; its ids must be
        new."""
        self._analyzer = self._analyzer.with_languages(analyzer.languages)
        name = self._name()
        self.folder.take(other, record.name, name)
        self._segments.append(self._open(replace(record, name=name)))

    def delete(self, doc_ids: Iterable[str]) -> int:
        """Deletes documents and returns their number. An unknown id is an error."""
        places: dict[int, list[int]] = {}
        unique = dict.fromkeys(doc_ids)
        for doc_id in unique:
            for position, segment in enumerate(self._segments):
                if (number := segment.find(doc_id)) >= 0:
                    places.setdefault(position, []).append(number)
                    break
            else:
                raise InputError(
                    f"no document has the id {doc_id!r}; nothing was deleted", code="not_found"
                )
        for position, numbers in places.items():
            self._delete_from(self._segments[position], numbers)
        return len(unique)

    def _delete_from(self, segment: Segment, numbers: list[int]) -> None:
        deleted = np.union1d(segment.deleted, np.array(numbers, np.uint32)).astype(np.uint32)
        name = f"deleted-{self.manifest.generation + 1}-{len(deleted)}.npy"
        files = segment.record.without_deletions().files
        with self.folder.child(segment.record.name) as folder:
            files[name] = replace_array(folder, name, deleted)
            folder.sync()
        record = replace(segment.record, files=files, deleted=name)
        self._segments[self._segments.index(segment)] = self._open(record)

    def merge(self) -> None:
        """Merges all segments into one."""
        if len(self._segments) > 1 or any(len(segment.deleted) for segment in self._segments):
            self._merge_last(len(self._segments))

    def merge_small(self) -> None:
        """Merges the last two segments while their sizes are similar, so that they stay few."""
        while len(self._segments) > 1:
            *_, before, last = (len(segment) - len(segment.deleted) for segment in self._segments)
            if before > _GROWTH * last:
                return
            self._merge_last(2)

    def _merge_last(self, count: int) -> None:
        merged = merge_segments(self.folder, self._name(), self._segments[-count:])
        self._segments[-count:] = [self._open(merged)] if merged.docs else []

    def commit(self) -> None:
        """Makes the change visible by one rename."""
        manifest = replace(
            self.manifest,
            analyzer=self._analyzer.name,
            generation=self.manifest.generation + 1,
            segments=tuple(segment.record for segment in self._segments),
            id=self._id,
        )
        write_manifest(self.folder, manifest)

    def _name(self) -> str:
        """A new name: a name in an older manifest must not lead a reader to other files."""
        self._written += 1
        return f"segment-{self.manifest.generation + 1:06d}-{self._written}-{self._id[:8]}"

    def _open(self, record: SegmentRecord) -> Segment:
        return Segment(self.folder, record, verify=False)


@contextmanager
def open_writer(path: Path, *, create: Manifest | None = None) -> Iterator[IndexWriter]:
    """Locks the index for a writer, and commits at the end of the `with` block. With `create`, the
    index starts empty, and replaces the old one at the commit."""
    is_new = done = False
    try:
        if create is not None:
            with suppress(FileExistsError):
                path.mkdir(parents=True)
                is_new = True  # only then may it be removed again
        # Opened only once: another folder that replaces it must not be locked.
        with ExitStack() as stack:
            if create is None:
                folder = stack.enter_context(open_index(path))
                load_manifest(folder)  # a folder that is not an index is not locked
            else:
                folder = stack.enter_context(Folder.open(path, follow=not is_new))
                check_is_index(path, folder.names())
            stack.enter_context(folder.lock())
            before = _old_manifest(folder, create)
            remove_leftovers(folder)
            try:
                writer = IndexWriter(folder, before, empty=create is not None)
                yield writer
                writer.commit()
                done = True
            finally:
                # After a commit these are the old segments, after a failure the new ones.
                remove_leftovers(folder)
    except NotDurableError as error:
        done = True
        raise disk_error(
            error, f"make the change to {path} durable", "it is made, but a power cut may undo it"
        ) from error
    except OSError as error:
        raise disk_error(error, f"write the index {path}", UNCHANGED) from error
    finally:
        if is_new and not done:
            with suppress(OSError):
                with Folder.open(path) as folder:
                    folder.remove(LOCK)
                path.rmdir()


def check_is_index(path: Path, names: Iterable[str]) -> None:
    """Raises an error if a folder contains anything that does not belong to an index."""
    known = (MANIFEST_FILE, f".{MANIFEST_FILE}.part", LOCK, "stores")
    if not all(is_segment_name(name) or name in known for name in names):
        raise InputError(f"{path} is not an index; choose another name", code="already_exists")


def _old_manifest(folder: Folder, create: Manifest | None) -> Manifest:
    """The manifest on disk; for a new index it may be damaged, absent, or of another language."""
    if create is None:
        return load_manifest(folder)
    try:
        return replace(load_manifest(folder), analyzer=create.analyzer)
    except GlassrankError:
        return create


def remove_leftovers(folder: Folder) -> None:
    """Removes segments that the manifest on disk does not name, if it can be read: only that
    manifest says whether a failed commit came as far as its rename."""
    try:
        segments = load_manifest(folder).segments if folder.kind(MANIFEST_FILE) else ()
        names = folder.names()
    except (OSError, GlassrankError):
        return
    named = {record.name: record.files for record in segments}
    for name in filter(is_segment_name, names):
        folder.remove_child(name, is_segment_file, named.get(name, {}))
