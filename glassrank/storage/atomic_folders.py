"""Folders that are replaced as a whole, and those of them that are written once, with a manifest of
their files.

    with replace_folder(path) as part: ...      # a new folder beside, to write into; then all is
                                              # synced, and the two change places
    model = read_folder(path, load)            # a reader that begins again if it was overtaken

Readers see the old folder or the new one, never neither.

    with write_checksummed_folder(path, "model", names) as part: ...   # write into `part`
    read_checksummed_folder(path, "model", load, remedy)               # load(files) reads them

A file is read as it was written, or there is a `CorruptError` that names it.
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
    """A folder to write to, which takes its name, and another's place, when it is complete."""
    path = path.absolute()
    name, part, old = path.name, _part(path.name), _old(path.name)
    if not is_plain_name(name):
        raise InputError(f"{path} cannot be written: its last part is no plain name")
    in_place = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with Folder.open(path.parent) as parent, parent.lock(name):
            _settle(parent, name)
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
            raise disk_error(error, f"make {path} durable", "it is written all the same") from error
        hint = "what was there before is unchanged"
        raise disk_error(error, f"write the folder {path}", hint) from error


def read_folder(path: str | Path, read: Callable[[Folder], T]) -> T:
    """What `read` makes of a folder; again, if that was replaced meanwhile and so has gone."""
    path = Path(path)
    for _ in range(_TRIES):
        with _opened(path) as folder:
            try:
                return read(folder)
            except (OSError, GlassrankError):
                if folder.is_current():
                    raise
    raise GlassrankError(f"{path} is replaced faster than it can be read; try again later")


def _opened(path: Path) -> Folder:
    """Where two folders cannot change places, the old one is aside for a moment, or since a kill;
    only a writer may put it back."""
    with suppress(FileNotFoundError):
        return Folder.open(path)
    with suppress(OSError):
        return Folder.open(path.with_name(_old(path.name)), follow=False)
    return Folder.open(path)  # there by now, or not at all


def _part(name: str) -> str:
    return f".{name}.part"


def _old(name: str) -> str:
    return f".{name}.old"


def _settle(parent: Folder, name: str) -> None:
    """Finishes what a killed writer began."""
    if parent.kind(name) is None and parent.kind(_old(name)) == "folder":
        parent.rename(_old(name), name)
    if parent.kind(name) not in (None, "folder"):
        raise InputError(f"{parent.path / name} is a file or a link; choose another name")
    remove_tree(parent, _old(name))
    remove_tree(parent, _part(name))


def _sync_tree(parent: Folder, name: str) -> None:
    """Makes durable what is in a folder that was just written."""
    if parent.descriptor is None:  # names cannot be made durable there, contents can
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
        parent.rename(part, name)  # if nothing is there yet
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if at is None or not _exchanged(at, part, name):
            parent.rename(name, _old(name))
            parent.rename(part, name)


def remove_tree(parent: Folder, name: str) -> None:
    """Whatever has this name, with all inside, as far as that can be removed; links are removed,
    not followed. Only for what this process made: a hidden name is allowed."""
    with suppress(OSError, RecursionError):
        if parent.kind(name) != "folder":
            parent.remove_hidden(name)
        elif parent.descriptor is None:
            shutil.rmtree(parent.path / name, ignore_errors=True)
        else:
            shutil.rmtree(name, ignore_errors=True, dir_fd=parent.descriptor)


def _exchanged(at: int, first: str, second: str) -> bool:
    """Whether two names changed places; False if this system, or this disk, cannot do it."""
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
    """The files of one folder, as its manifest has them."""

    def __init__(self, folder: Folder, records: Mapping[str, FileRecord]) -> None:
        self.folder = folder
        self.path = folder.path
        self._records = records

    def __contains__(self, name: str) -> bool:
        return name in self._records

    @property
    def fingerprint(self) -> str:
        """The same for the same files, another for any other."""
        return hashlib.blake2b(
            repr(sorted(self._records.items())).encode(), digest_size=8
        ).hexdigest()

    def size(self, name: str) -> int:
        """In bytes, as the manifest says."""
        return self._record(name).size

    def read(self, name: str, limit: int) -> bytes:
        """A whole file of at most `limit` bytes."""
        with self.open(name, limit) as file:
            return self.rest(name, file)

    def open(self, name: str, limit: int) -> IO[bytes]:
        """A file of the right size; whoever reads it gives its content to `check`."""
        expected = self.size(name)
        if expected > limit:
            raise CorruptError(
                f"{self.path / name} has {expected:,} bytes, more than the {limit:,} that are read"
            )
        file = self.folder.open_file(name)
        size = file.seek(0, os.SEEK_END)
        if size != expected:
            file.close()
            raise self._damaged(name, f"expected {expected:,} bytes, found {size:,}")
        file.seek(0)
        return file

    def rest(self, name: str, file: IO[bytes]) -> bytes:
        """All of an open file, checked."""
        file.seek(0)
        content = file.read(self.size(name))
        self.check(name, zlib.crc32(content))
        return content

    def check(self, name: str, crc32: int) -> None:
        """Holds a checksum against the manifest's."""
        expected = self._record(name).crc32
        if crc32 != expected:
            raise self._damaged(name, f"its checksum is {crc32:08x}, expected {expected:08x}")

    def _record(self, name: str) -> FileRecord:
        if name not in self._records:
            raise CorruptError(f"{self.path} is not whole: its {MANIFEST} does not name {name}")
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
    """A new folder to write to; it gets its manifest and its name when it is complete. `holds` are
    the names, or patterns of names, that a folder of this kind may have: one with others in it is
    not replaced, since they would be lost. The file `beside` is left out of the manifest."""
    with replace_folder(path) as part:
        _check_replaceable(path, kind, (MANIFEST, *holds))
        yield part
        with Folder.open(part) as folder:
            names = [entry.name for entry in sorted(part.iterdir()) if entry.is_file()]
            write_checksums(folder, kind, [name for name in names if name != beside])


def _check_replaceable(path: Path, kind: str, holds: Sequence[str]) -> None:
    try:
        with Folder.open(path) as folder:
            names = folder.names()
    except FileNotFoundError:
        return
    for name in names:
        if not any(fnmatchcase(name, pattern) for pattern in holds):
            raise InputError(
                f"{path} holds {shorten_repr(name)}, which is no part of a {kind}, "
                "and would be lost; move it or choose another folder"
            )


def write_checksums(folder: Folder, kind: str, names: Sequence[str]) -> None:
    """Writes the manifest of files that are there."""
    files = {name: checksum_file(folder, name) for name in names}
    write_json(folder, MANIFEST, {"format": FORMAT, "kind": kind, "files": files})


def read_checksummed_folder(
    path: Path,
    kind: str,
    read: Callable[[ChecksummedFiles], T],
    remedy: str,
    unsealed: str = "",
) -> T:
    """What `read` makes of a folder, old or new if it is replaced meanwhile. `remedy` says what to
    do where there is no such folder, `unsealed` what to do with one that has no manifest."""

    def look(folder: Folder) -> T:
        return read(open_checksummed_files(folder, kind, remedy))

    with wrap_os_errors(f"read {path}"):
        try:
            return read_folder(path, look)
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = Path(str(error.filename or path))
            if missing == path:
                raise NoFolderError(f"{path} is not a {kind} folder; {remedy}") from None
            hint = unsealed if unsealed and missing.name == MANIFEST else remedy
            raise InputError(
                f"{path} is not a {kind} folder ({missing.name} is missing); {hint}"
            ) from None


def open_checksummed_files(folder: Folder, kind: str, remedy: str) -> ChecksummedFiles:
    """As the manifest has them."""
    try:
        body = read_json(folder, MANIFEST, remedy)
        if body["format"] == FORMAT and body["kind"] == kind:
            return ChecksummedFiles(folder, parse_records(body["files"]))
    except (CorruptError, ValueError, KeyError, TypeError):
        pass
    raise InputError(
        f"{folder.path} is not a {kind} folder of this version, or its {MANIFEST} is damaged; "
        f"{remedy}"
    )
