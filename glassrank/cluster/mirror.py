"""An index on any path that fsspec knows, such as an object store: read by ranges, kept on a disk.

Files never change once a manifest names them, with sizes and checksums: a copy stays good, a
stopped one goes on, and a shard copies only its own segments and parts.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from glassrank.embeddings.manifest import FILE_NAME as STORE_FILE
from glassrank.embeddings.manifest import list_stores, load_store_manifest, read_manifest
from glassrank.errors import CorruptError, InputError, needs_extra, wrap_os_errors
from glassrank.index.segment import SegmentRecord
from glassrank.index.snapshot import MANIFEST_FILE, load_manifest
from glassrank.index.writer import remove_leftovers
from glassrank.storage.checksummed_json import FileRecord
from glassrank.storage.folders import Folder
from glassrank.storage.mapped_arrays import checksum_array

RANGE_BYTES = 8 << 20
"""That are asked for at once: large enough that the way there is cheap."""
_FILES_AT_ONCE = 8
CACHE = "GLASSRANK_CACHE"
_INCOMING = "incoming"
Loaded = TypeVar("Loaded")


def parse_url(path: object) -> str | None:
    """A path that is none of this machine's; one that was a `Path` has lost a slash.

    >>> parse_url(Path("s3://bucket/my.index")), parse_url("memory://a"), parse_url("/my.index")
    ('s3://bucket/my.index', 'memory://a', None)
    """
    kind, colon, rest = str(path).partition(":/")
    return f"{kind}://{rest.lstrip('/')}" if colon and kind.isalnum() else None


class Mirror:
    """A copy of an index, or of some of it."""

    def __init__(self, url: str, name: str = "whole") -> None:
        """`name` tells copies of parts of an index apart. They stand where GLASSRANK_CACHE says."""
        self.url = url
        self._files, self._root = _opened(url)
        folder = Path(os.environ.get(CACHE) or Path.home() / ".cache" / "glassrank")
        digest = hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
        self.path = folder / "copies" / digest / name

    def whole(self) -> Path:
        """All segments, and of the stores the neighbour graphs: what whoever asks shards needs.
        The manifest comes last, so that readers of the copy see the old index or the new one."""
        with self._writing() as folder, folder.lock():
            try:
                content = self._read(MANIFEST_FILE)
            except FileNotFoundError:
                problem = f"{self.url} is not an index (it has no {MANIFEST_FILE})"
                raise InputError(problem) from None
            manifest = _load(folder, MANIFEST_FILE, content, load_manifest)
            self._segments(folder, manifest.segments)
            self._copy_stores(folder, None)
            folder.write(MANIFEST_FILE, content)
            remove_leftovers(folder)
        return self.path

    def part(self, segments: Iterable[SegmentRecord], others: Collection[str]) -> Path:
        """These segments, and all of the stores but what belongs to the others."""
        with self._writing() as folder, folder.lock():
            self._segments(folder, segments)
            self._copy_stores(folder, others)
        return self.path

    def stores(self) -> tuple[int, ...]:
        """A number for each store, which differs when it is written."""
        contents = [self._read(f"stores/{name}/{STORE_FILE}") for name in self._stores()]
        digests = [hashlib.blake2b(content, digest_size=8).digest() for content in contents]
        return tuple(int.from_bytes(digest, "little") for digest in digests)

    def _writing(self) -> Folder:
        with wrap_os_errors(f"copy {self.url}"):
            self.path.mkdir(parents=True, exist_ok=True)
            return Folder.open(self.path)

    def _stores(self) -> list[str]:
        try:
            return sorted(_names(self._files, f"{self._root}/stores"))
        except FileNotFoundError:
            return []

    def _copy_stores(self, folder: Folder, others: Collection[str] | None) -> None:
        """Their parts but for those of `others`; if that is None, their graphs alone."""
        for name in self._stores():
            place = f"stores/{name}"
            with (
                folder.make_child("stores", exist_ok=True) as stores,
                stores.make_child(name, exist_ok=True) as store,
            ):
                content = self._read(f"{place}/{STORE_FILE}")
                manifest = _load(store, STORE_FILE, content, load_store_manifest)
                for part in manifest.parts:
                    if others is not None and part.segment not in others:
                        self._copy(store, f"{place}/{part.name}", part.name, part.files)
                if others is None and (graph := manifest.graph) is not None:
                    self._copy_file(store, place, graph.name, graph.file)
                store.write(STORE_FILE, content)

    def _segments(self, folder: Folder, records: Iterable[SegmentRecord]) -> None:
        for record in records:
            self._copy(folder, record.name, record.name, record.files)

    def _copy(self, parent: Folder, place: str, name: str, files: dict[str, FileRecord]) -> None:
        with (
            parent.make_child(name, exist_ok=True) as folder,
            ThreadPoolExecutor(_FILES_AT_ONCE) as threads,
        ):
            copy = partial(self._copy_file, folder, place)
            list(threads.map(copy, files, files.values()))
            folder.sync()

    def _copy_file(self, folder: Folder, place: str, name: str, record: FileRecord) -> None:
        """By ranges, from where a copy that was stopped ended."""
        place = f"{place}/{name}"
        if folder.kind(name) is None:
            folder.create(name).close()
        with folder.reopen(name) as file:
            start = file.seek(0, os.SEEK_END)
            if start == record.size:
                return
            if start > record.size:
                start = file.truncate(0)
            file.seek(start)
            for first in range(start, record.size, RANGE_BYTES):
                last = min(first + RANGE_BYTES, record.size)
                file.write(self._files.cat_file(f"{self._root}/{place}", start=first, end=last))
            file.flush()
            os.fsync(file.fileno())
        if checksum_array(folder, name) != record:
            folder.remove(name)
            raise CorruptError(
                f"{self.url}/{place} is damaged: it is not what the manifest says; publish it again"
            )

    def _read(self, place: str) -> bytes:
        return bytes(self._files.cat_file(f"{self._root}/{place}"))


def publish(path: Path, url: str) -> None:
    """An index with its stores to another place. Its manifest is written last, and what the one
    before it names stays until the next time: who reads that is not disturbed."""
    files, root = _opened(url)
    with Folder.open(path) as folder:
        manifest = load_manifest(folder)
    named = {record.name for record in manifest.segments}
    if files.exists(f"{root}/{MANIFEST_FILE}"):
        content = bytes(files.cat_file(f"{root}/{MANIFEST_FILE}"))
        with tempfile.TemporaryDirectory() as place, Folder.open(place) as folder:
            before = _load(folder, MANIFEST_FILE, content, load_manifest)
        named |= {record.name for record in before.segments}

    def put(place: str, size: int | None = None) -> None:
        target = f"{root}/{place}"
        if size is None or not files.exists(target) or files.size(target) != size:
            files.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            files.put_file(str(path / place), target)

    for record in manifest.segments:
        for name, file in record.files.items():
            put(f"{record.name}/{name}", file.size)
    for store in list_stores(path):
        place, stored = f"stores/{store.name}", read_manifest(store)
        if (graph := stored.graph) is not None:
            put(f"{place}/{graph.name}", graph.file.size)
        for part in stored.parts:
            for name, file in part.files.items():
                put(f"{place}/{part.name}/{name}", file.size)
        put(f"{place}/{STORE_FILE}")
    put(MANIFEST_FILE)
    for name in _names(files, root):
        if name.startswith("segment-") and name not in named:
            files.rm(f"{root}/{name}", recursive=True)


def _load(folder: Folder, name: str, content: bytes, load: Callable[[Folder], Loaded]) -> Loaded:
    """A manifest that is not in its place yet."""
    with folder.make_child(_INCOMING, exist_ok=True) as incoming:
        incoming.write(name, content)
        return load(incoming)


def _names(files: Any, place: str) -> list[str]:
    return [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in files.ls(place, detail=False)]


def _opened(url: str) -> tuple[Any, str]:
    with needs_extra("cluster"):
        import fsspec
    try:
        files, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InputError(f"{url} cannot be read: {error}") from error
    return files, str(root).rstrip("/")
