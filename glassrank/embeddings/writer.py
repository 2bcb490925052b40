"""Changes a store: adds parts for the segments that it lacks, one writer at a time.

Each part is committed when it is whole. Parts that no segment needs any more stay until the last
one is, because their rows may go into it.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from glassrank.embeddings.manifest import (
    FILE_NAME,
    GraphRecord,
    Layout,
    Manifest,
    PartRecord,
    is_graph_name,
    is_part_name,
    load_store_manifest,
    open_store,
    part_name,
    write_manifest,
)
from glassrank.embeddings.part import PROGRESS, Part, ReusableRows, is_part_file
from glassrank.errors import CorruptError, InputError, wrap_os_errors
from glassrank.index.segment import Segment
from glassrank.index.snapshot import Snapshot
from glassrank.storage.folders import LOCK, Folder


class StoreWriter:
    """One change to a store, which follows an index to the state of a snapshot."""

    def __init__(self, folder: Folder, manifest: Manifest, snapshot: Snapshot) -> None:
        self.folder = folder
        self.manifest = manifest
        self.names = {part_name(segment.record): segment for segment in snapshot.segments}
        self._remove_all_but({part.name for part in manifest.parts} | self.names.keys())

    def missing(self) -> dict[str, Segment]:
        """Segments without a part, by the names that their parts will have."""
        there = {part.name for part in self.manifest.parts}
        return {name: segment for name, segment in self.names.items() if name not in there}

    def reusable_rows(self) -> ReusableRows:
        """Of parts whose segments are gone; what is damaged is left out, and encoded anew."""
        parts = []
        for record in self.manifest.parts:
            if record.name not in self.names:
                with suppress(CorruptError):
                    parts.append(Part(self.folder, record, self.manifest.layout, verify=True))
        return ReusableRows(parts)

    def add(self, part: PartRecord) -> None:
        """Commits a part, in the place of one of the same name."""
        parts = {known.name: known for known in self.manifest.parts}
        self._commit(tuple({**parts, part.name: part}.values()))

    def set_graph(self, graph: GraphRecord) -> None:
        """Commits a neighbour graph, and removes all others."""
        self._commit(self.manifest.parts, graph)
        for name in filter(is_graph_name, self.folder.names()):
            if name != graph.name:
                self.folder.remove(name)

    def tidy(self) -> None:
        """Lets go of what no segment needs, once every segment has its part."""
        parts = {part.name: part for part in self.manifest.parts}
        needed = tuple(parts[name] for name in self.names)
        if needed != self.manifest.parts:
            self._commit(needed)
        self._remove_all_but(self.names)
        for name in self.names:
            with self.folder.child(name) as part:
                part.remove(PROGRESS)

    def _commit(self, parts: tuple[PartRecord, ...], graph: GraphRecord | None = None) -> None:
        self.manifest = replace(
            self.manifest,
            generation=self.manifest.generation + 1,
            parts=parts,
            graph=graph or self.manifest.graph,
        )
        write_manifest(self.folder, self.manifest)

    def _remove_all_but(self, names: Collection[str]) -> None:
        for name in filter(is_part_name, self.folder.names()):
            if name not in names:
                self.folder.remove_child(name, is_part_file)


@contextmanager
def open_store_writer(path: Path, layout: Layout, snapshot: Snapshot) -> Iterator[StoreWriter]:
    """A writer with the store to itself. What was committed inside stays, whatever comes later."""
    hint = "what was encoded is kept"
    with wrap_os_errors(f"write the store {path}", hint), open_store(path, make=True) as folder:
        _check_is_store(folder)  # before a lock is left there
        with folder.lock():
            yield StoreWriter(folder, _create_or_load(folder, layout), snapshot)


def _check_is_store(folder: Folder) -> None:
    names = folder.names()
    if FILE_NAME not in names and any(n not in (LOCK, f".{FILE_NAME}.part") for n in names):
        raise InputError(
            f"{folder.path} is something else than a document store; choose another name"
        )


def _create_or_load(folder: Folder, layout: Layout) -> Manifest:
    """The store as it is, or an empty one; never one that holds something else."""
    try:
        manifest = load_store_manifest(folder)
    except FileNotFoundError:
        write_manifest(folder, manifest := Manifest(layout))
    there = manifest.layout
    if there.fingerprint != layout.fingerprint or there.vocabulary != layout.vocabulary:
        raise InputError(
            f"{folder.path} belongs to another model (its fingerprint is {there.fingerprint}, this "
            f"model's {layout.fingerprint}); choose another name, or remove that folder"
        )
    if there != layout:
        raise InputError(
            f"{folder.path} holds {there.description} {there.passages_description}, not "
            f"{layout.description} {layout.passages_description}; choose another name, or remove "
            "that folder"
        )
    return manifest
