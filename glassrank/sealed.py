"""A folder that is written once, with a manifest of its files, and replaced as a whole.

    with sealed_folder(path, "model", names) as part: ...    # write into `part`; then all counts
    read_sealed(path, "model", load, remedy)                 # load(files) reads what was written

A file is read as it was written, or there is a `CorruptError` that names it.
"""

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TypeVar

from glassrank.checked import (
    FileRecord,
    parse_records,
    read_checked,
    record_of,
    write_checked,
)
from glassrank.errors import CorruptError, GlassrankError, InputError, explained
from glassrank.folders import Folder
from glassrank.settings import shown
from glassrank.whole_folder import read_whole, whole_folder

T = TypeVar("T")

MANIFEST = "checksums.json"
FORMAT = 1
_LONGEST_MESSAGE = 500


class SealedFiles:
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
    """Nothing is there."""


@contextmanager
def sealed_folder(path: Path, kind: str, holds: Sequence[str], beside: str = "") -> Iterator[Path]:
    """A new folder to write to; it gets its manifest and its name when it is complete. `holds` are
    the names, or patterns of names, that a folder of this kind may have: one with others in it is
    not replaced, since they would be lost. The file `beside` is left out of the manifest."""
    with whole_folder(path) as part:
        _check_replaceable(path, kind, (MANIFEST, *holds))
        yield part
        with Folder.open(part) as folder:
            names = [entry.name for entry in sorted(part.iterdir()) if entry.is_file()]
            seal(folder, kind, [name for name in names if name != beside])


def _check_replaceable(path: Path, kind: str, holds: Sequence[str]) -> None:
    try:
        with Folder.open(path) as folder:
            names = folder.names()
    except FileNotFoundError:
        return
    for name in names:
        if not any(fnmatchcase(name, pattern) for pattern in holds):
            raise InputError(
                f"{path} holds {shown(name)}, which is no part of a {kind}, and would be lost; "
                "move it or choose another folder"
            )


def seal(folder: Folder, kind: str, names: Sequence[str]) -> None:
    """Writes the manifest of files that are there."""
    files = {name: record_of(folder, name) for name in names}
    write_checked(folder, MANIFEST, {"format": FORMAT, "kind": kind, "files": files})


def read_sealed(
    path: Path,
    kind: str,
    read: Callable[[SealedFiles], T],
    remedy: str,
    unsealed: str = "",
) -> T:
    """What `read` makes of a folder, old or new if it is replaced meanwhile. `remedy` says what to
    do where there is no such folder, `unsealed` what to do with one that has no manifest."""

    def look(folder: Folder) -> T:
        return read(sealed_files(folder, kind, remedy))

    with explained(f"read {path}"):
        try:
            return read_whole(path, look)
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = Path(str(error.filename or path))
            if missing == path:
                raise NoFolderError(f"{path} is not a {kind} folder; {remedy}") from None
            hint = unsealed if unsealed and missing.name == MANIFEST else remedy
            raise InputError(
                f"{path} is not a {kind} folder ({missing.name} is missing); {hint}"
            ) from None


def sealed_files(folder: Folder, kind: str, remedy: str) -> SealedFiles:
    """As the manifest has them."""
    try:
        body = read_checked(folder, MANIFEST, remedy)
        if body["format"] == FORMAT and body["kind"] == kind:
            return SealedFiles(folder, parse_records(body["files"]))
    except (CorruptError, ValueError, KeyError, TypeError):
        pass
    raise InputError(
        f"{folder.path} is not a {kind} folder of this version, or its {MANIFEST} is damaged; "
        f"{remedy}"
    )


@contextmanager
def about(path: Path, doing: str) -> Iterator[None]:
    """Whatever the content of a stranger's file leads to is one sentence about that folder."""
    try:
        yield
    except OSError:
        raise
    except GlassrankError as error:
        text = str(error)
        named = text if str(path) in text else f"{path}: {text}"
        raise type(error)(_printable(named)) from error
    except Exception as error:  # a value that nobody thought of
        text = f"{path}: {doing} ({type(error).__name__}: {error})"
        raise InputError(_printable(text)) from error


def _printable(text: str) -> str:
    """On one line, and without what a terminal would obey; names in files may be anything."""
    short = text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."
    return "".join(letter if letter.isprintable() else "?" for letter in short)
