"""Folders that are replaced as a whole, optionally with a manifest of checksums: readers see the
old folder or the new one, never neither.

    with write_checksummed_folder(path, "model", names) as part: ...   # write into `part`
    read_checksummed_folder(path, "model", load, remedy)               # load(files) reads them
"""

import ctypes
import errno
import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TypeVar

from glassrank.errors import CorruptError, GlassrankError, InputError, disk_error, wrap_os_errors
from glassrank.settings import shorten_repr
from glassrank.storage.checksummed_json import (
    FileRecord,
    checksum_file,
    parse_records,
    read_json,
    write_json,
)
from glassrank.storage.folders import NO_FOLLOW, Folder, is_plain_name

T = TypeVar("T")

_EXCHANGE = 2  # Linux's RENAME_EXCHANGE
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_TRIES = 1000

MANIFEST = "checksums.json"
FORMAT = 1


@contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to write to; it replaces `path` when it is complete."""
    path = path.absolute()
    name, part, old = path.name, _part_name(path.name), _old_name(path.name)
    if not is_plain_name(name):
        raise InputError(f"{path} cannot be written: its last part is not a plain name")
    in_place = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with Folder.open(path.parent) as parent, parent.lock(name):
            _recover(parent, name)
            parent.make_folder(part)
            try:
                yield path.with_name(part)
                _sync_tree(parent, part)
                _exchange(parent, part, name)
                in_place = True
                parent.sync()
            finally:
                remove_tree(parent, part)
                if in_place:
                    remove_tree(parent, old)
    except OSError as error:
        if in_place:
            raise disk_error(error, f"make {path} durable", "the folder is written") from error
        hint = "the folder is as it was before"
        raise disk_error(error, f"write the folder {path}", hint) from error


def read_folder(path: str | Path, read: Callable[[Folder], T]) -> T:
    """Returns `read(folder)`; reads again if the folder was replaced meanwhile."""
    path = Path(path)
    for _ in range(_TRIES):
        with _open(path) as folder:
            try:
                return read(folder)
            except (OSError, GlassrankError):
                if folder.is_current():
                    raise
    raise GlassrankError(f"{path} is replaced faster than it can be read; try again later")


def _open(path: Path) -> Folder:
    """Where the system cannot exchange two folders, the old one has another name for a moment, or
    since a writer was killed; only a writer may rename it back."""
    with suppress(FileNotFoundError):
        return Folder.open(path)
    with suppress(OSError):
        return Folder.open(path.with_name(_old_name(path.name)), follow=False)
    return Folder.open(path)  # exists by now, or not at all


def _part_name(name: str) -> str:
    return f".{name}.part"


def _old_name(name: str) -> str:
    return f".{name}.old"


def _recover(parent: Folder, name: str) -> None:
    old = _old_name(name)
    if parent.kind(name) is None and parent.kind(old) == "folder":
        parent.rename(old, name)
    if parent.kind(name) not in (None, "folder"):
        raise InputError(f"{parent.path / name} is a file or a link; choose another name")
    remove_tree(parent, old)
    remove_tree(parent, _part_name(name))


def _sync_tree(parent: Folder, name: str) -> None:
    if parent.descriptor is None:  # contents can be made durable, names cannot
        for path in (parent.path / name).rglob("*"):
            if path.is_file():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
        return
    for _, _, files, at in os.fwalk(name, dir_fd=parent.descriptor):
        for file_name in files:
            descriptor = os.open(file_name, os.O_RDONLY | NO_FOLLOW, dir_fd=at)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        os.fsync(at)


def _exchange(parent: Folder, part: str, name: str) -> None:
    """In one step where the system can do that, else in two."""
    at = parent.descriptor
    try:
        parent.rename(part, name)  # if there is no such folder yet
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if at is None or not _exchanged(at, part, name):
            parent.rename(name, _old_name(name))
            parent.rename(part, name)


def remove_tree(parent: Folder, name: str) -> None:
    """Removes an entry with all its content, as far as possible; links are not followed. A hidden
    name is allowed: it is for what this process made."""
    with suppress(OSError, RecursionError):
        if parent.kind(name) != "folder":
            parent.remove_hidden(name)
        elif parent.descriptor is None:
            shutil.rmtree(parent.path / name, ignore_errors=True)
        else:
            shutil.rmtree(name, ignore_errors=True, dir_fd=parent.descriptor)


def _exchanged(at: int, first: str, second: str) -> bool:
    """Exchanges two names; False if this system or disk cannot do it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(at, os.fsencode(first), at, os.fsencode(second), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code))


class ChecksummedFiles:
    """The files of a folder that its manifest names."""

    def __init__(self, folder: Folder, records: Mapping[str, FileRecord]) -> None:
        self.folder = folder
        self.path = folder.path
        self._records = records

    def __contains__(self, name: str) -> bool:
        return name in self._records

    @property
    def fingerprint(self) -> str:
        """A hash of all names, sizes and checksums."""
        records = repr(sorted(self._records.items()))
        return hashlib.blake2b(records.encode(), digest_size=8).hexdigest()

    def size(self, name: str) -> int:
        """The size in bytes, by the manifest."""
        return self._record(name).size

    def read(self, name: str, limit: int) -> bytes:
        """The checked content of a file of at most `limit` bytes."""
        with self.open(name, limit) as file:
            return self.read_all(name, file)

    def open(self, name: str, limit: int) -> IO[bytes]:
        """Opens a file of the right size; the reader calls `check` with its checksum."""
        expected = self.size(name)
        if expected > limit:
            raise CorruptError(
                f"{self.path / name} has {expected:,} bytes, more than the limit of {limit:,}",
                code="too_large",
            )
        file = self.folder.open_file(name)
        size = file.seek(0, os.SEEK_END)
        if size != expected:
            file.close()
            raise self._damaged(name, f"expected {expected:,} bytes, found {size:,}")
        file.seek(0)
        return file

    def read_all(self, name: str, file: IO[bytes]) -> bytes:
        """The checked content of an open file."""
        file.seek(0)
        content = file.read(self.size(name))
        self.check(name, zlib.crc32(content))
        return content

    def check(self, name: str, crc32: int) -> None:
        """Compares a checksum with the manifest's."""
        expected = self._record(name).crc32
        if crc32 != expected:
            raise self._damaged(name, f"its checksum is {crc32:08x}, expected {expected:08x}")

    def _record(self, name: str) -> FileRecord:
        if name not in self._records:
            raise CorruptError(f"{self.path} is incomplete: its {MANIFEST} does not name {name}")
        return self._records[name]

    def _damaged(self, name: str, why: str) -> CorruptError:
        return CorruptError(
            f"{self.path / name} is damaged: {why}; restore it from a copy or make it again"
        )


class NoFolderError(InputError):
    """The folder does not exist."""

    code = "not_found"


@contextmanager
def write_checksummed_folder(
    path: Path, kind: str, holds: Sequence[str], beside: str = ""
) -> Iterator[Path]:
    """A temporary folder to write to; it gets its manifest and its name when it is complete.
    `holds` are the names, or patterns of names, of a folder of this kind: a folder with other files
    is not replaced, since these would be lost. The file `beside` is not in the manifest."""
    with replace_folder(path) as part:
        check_replaceable(path, kind, holds)
        yield part
        with Folder.open(part) as folder:
            names = [entry.name for entry in sorted(part.iterdir()) if entry.is_file()]
            write_checksums(folder, kind, [name for name in names if name != beside])


def check_replaceable(path: Path, kind: str, holds: Sequence[str]) -> None:
    """Raises an error if a folder of this kind may not be written here: files would be lost."""
    try:
        with Folder.open(path) as folder:
            names = folder.names()
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise InputError(f"{path} is a file, expected a folder; choose another name") from None
    for name in names:
        if not any(fnmatchcase(name, pattern) for pattern in (MANIFEST, *holds)):
            raise InputError(
                f"{path} holds {shorten_repr(name)}, which is no part of a {kind}, "
                "and would be lost; move it or choose another folder"
            )


def write_checksums(folder: Folder, kind: str, names: Sequence[str]) -> None:
    """Writes the manifest of existing files."""
    files = {name: checksum_file(folder, name) for name in names}
    write_json(folder, MANIFEST, {"format": FORMAT, "kind": kind, "files": files})


def read_checksummed_folder(
    path: Path, kind: str, read: Callable[[ChecksummedFiles], T], remedy: str, no_manifest: str = ""
) -> T:
    """Returns `read(files)` of a folder. `remedy` says what to do if there is no such folder,
    `no_manifest` what to do if it has no manifest."""
    with wrap_os_errors(f"read {path}"):
        try:
            return read_folder(
                path, lambda folder: read(open_checksummed_files(folder, kind, remedy))
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = Path(str(error.filename or path))
            if missing == path:
                raise NoFolderError(f"{path} is not a {kind} folder; {remedy}") from None
            hint = no_manifest if no_manifest and missing.name == MANIFEST else remedy
            raise InputError(
                f"{path} is not a {kind} folder ({missing.name} is missing); {hint}"
            ) from None


def open_checksummed_files(folder: Folder, kind: str, remedy: str) -> ChecksummedFiles:
    """Reads the manifest of a folder."""
    try:
        body = read_json(folder, MANIFEST, remedy)
        if body["format"] == FORMAT and body["kind"] == kind:
            return ChecksummedFiles(folder, parse_records(body["files"]))
    except (CorruptError, ValueError, KeyError, TypeError):
        pass
    raise InputError(
        f"{folder.path} is not a {kind} folder of this version, or its {MANIFEST} is damaged; "
        f"{remedy}",
        code="wrong_version",
    )
