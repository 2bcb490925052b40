"""Reading and writing files so that nothing half-written is ever left behind.

Files come from strangers: a line, a whole file and what a `.gz` unfolds to have bounds, far above
what collections have, so that no file fills the memory.
"""

import gzip
import io
import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from glassrank.errors import InputError, disk_error, wrap_os_errors
from glassrank.storage.folders import NO_FOLLOW, Folder

MAX_LINE_BYTES = 1 << 26
"""Bytes (67 MB), of files that hold a document on a line; a document's text is bounded likewise."""
MAX_ROW_BYTES = 1 << 20
"""Bytes, of files that hold a few ids and numbers on a line."""
MOST_EXPANSION = 100
"""What a `.gz` may unfold to, as a multiple of what was read of it: texts reach 10, the most
repetitive ones 50, a bomb 1,000. The first 4 MB are free."""
FREE_EXPANSION = 1 << 22

_DAMAGED = "the gzip data is damaged or cut off; fetch or write the file again"
_BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)


def read_lines(
    path: str | Path, encoding: str = "utf-8", longest: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, str]]:
    """(line number, line without its end) of a text file, or of its `.gz`.

    Lines end at `\\n` or `\\r\\n` only, as in every format of the field: other Unicode line breaks
    may stand inside a document's text. `encoding` is any that writes a line end as one byte: UTF-8,
    Latin-1, Windows' and most others, but not UTF-16.
    """
    path = Path(path)
    number = 0
    with open_bytes(path) as file:
        while True:
            try:
                raw = file.readline(longest + 1)
            except _BROKEN_GZIP:
                raise InputError.at(path, number + 1, _DAMAGED) from None
            except OSError as error:
                raise _unreadable(path, error) from None
            if not raw:
                return
            number += 1
            if len(raw) > longest:
                raise InputError.at(path, number, _too_long(longest))
            line = _decoded(raw, encoding, path, number)
            if number == 1:
                line = line.removeprefix("\ufeff")  # a byte order mark, as Windows writes
            yield number, line.removesuffix("\n").removesuffix("\r")


def read_blocks(path: str | Path, size: int = 1 << 20) -> Iterator[bytes]:
    """The file, or what its `.gz` holds, in blocks of whole lines of about `size` bytes.

    For files of millions of short lines, where handling each on its own takes most of the time.
    """
    path = Path(path)
    with open_bytes(path) as file:
        while True:
            try:
                block = file.read(size)
                end = file.readline(MAX_ROW_BYTES + 1)
            except _BROKEN_GZIP:
                raise InputError(f"{path}: {_DAMAGED}") from None
            except OSError as error:
                raise _unreadable(path, error) from None
            if len(end) > MAX_ROW_BYTES:
                raise InputError(f"{path}: {_too_long(MAX_ROW_BYTES)}")
            if not block:
                return
            yield block + end


def read_file(path: str | Path, most: int) -> bytes:
    """A file that is needed in one piece, or what its `.gz` holds, of no more than `most` bytes.
    Only a plain file: settings name others, and a pipe would be waited for."""
    path = Path(path)
    with open_bytes(path, plain=True) as file:
        try:
            content = file.read(most + 1)
        except _BROKEN_GZIP:
            raise InputError(f"{path}: {_DAMAGED}") from None
        except OSError as error:
            raise _unreadable(path, error) from None
    if len(content) > most:
        raise InputError(f"{path} is larger than {most:,} bytes; is it the right file?")
    return content


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """A file, or what its `.gz` holds, to be read in pieces; what goes wrong is one sentence."""
    with open_bytes(path) as file:
        try:
            yield file
        except _BROKEN_GZIP:
            raise InputError(f"{path}: {_DAMAGED}") from None
        except OSError as error:
            raise _unreadable(path, error) from None


@contextmanager
def open_bytes(path: Path, *, plain: bool = False) -> Iterator[IO[bytes]]:
    """A file open for reading, or what its `.gz` holds, which may not unfold without end."""
    try:
        if plain and stat.S_IFMT(path.stat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise InputError(f"{path} is a pipe or a device, expected a file")
        file: IO[bytes] = path.open("rb")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, expected a file") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError:  # a NUL in it
        raise InputError(f"{str(path)!r} is not the name of a file") from None
    with file:
        if path.suffix.lower() == ".gz":
            yield cast(IO[bytes], io.BufferedReader(_Unfolding(path, file), 1 << 17))
        else:
            yield file


class _Unfolding(io.RawIOBase):
    """What a gzip file holds, as long as it does not unfold too far."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._content = gzip.GzipFile(fileobj=file)
        self._unfolded = 0

    def readable(self) -> bool:
        """As `io` asks before it puts a buffer around this."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes, until there are too many for so small a file."""
        count = self._content.readinto(buffer)
        self._unfolded += count
        if self._unfolded > max(FREE_EXPANSION, MOST_EXPANSION * self._file.tell()):
            raise InputError(
                f"{self._path} unfolds to more than {MOST_EXPANSION} times its size; "
                "if you trust it, unpack it first"
            )
        return count


def max_content_bytes(path: Path) -> int:
    """The most that a file, or what its `.gz` holds, can have; known before it is read."""
    size = path.stat().st_size
    return max(FREE_EXPANSION, MOST_EXPANSION * size) if path.suffix.lower() == ".gz" else size


def _decoded(raw: bytes, encoding: str, path: Path, number: int) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeError as error:
        place = error.start + 1 if isinstance(error, UnicodeDecodeError) else 1
        raise InputError.at(
            path,
            number,
            f"invalid {encoding.upper()} at byte {place} of the line; "
            f"convert the file to {encoding.upper()}, or name its encoding",
        ) from None
    except LookupError:
        raise _unknown(encoding) from None


def check_encoding(encoding: str) -> None:
    """That Python knows it."""
    try:
        b"x".decode(encoding, "replace")
    except LookupError:
        raise _unknown(encoding) from None


def _unknown(encoding: str) -> InputError:
    return InputError(f"unknown encoding {encoding!r}; expected a name such as utf-8 or latin-1")


def _too_long(longest: int) -> str:
    return f"a line is longer than {longest:,} bytes; is it the right format?"


def _unreadable(path: Path, error: OSError) -> InputError:
    if isinstance(error, PermissionError):
        return InputError(f"{path} cannot be read: permission denied")
    return InputError(f"{path} cannot be read: {error.strerror or error}")


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """A text file that appears whole or not at all; `.gz` is compressed."""
    path = Path(path)
    with (
        replace_file(path) as part,
        gzip.open(part, "wt", encoding="utf-8", newline="\n")
        if path.suffix == ".gz"
        else part.open("w", encoding="utf-8", newline="\n") as file,
    ):
        yield file


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A name to write to; the file gets its own name when it is complete and durable."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    in_place = False
    try:
        if path.is_char_device() or path.is_block_device():  # root may replace even /dev/null
            raise InputError(f"cannot write {path}: it is a device; name a file")
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o666))
        yield part
        _sync(part)
        part.replace(path)
        in_place = True
        _sync(path.parent)
    except OSError as error:
        error.filename = None  # the name of the part means nothing to anybody
        if in_place:
            raise disk_error(error, f"make {path} durable", "it is written all the same") from error
        raise disk_error(error, f"write {path}") from error
    finally:
        with suppress(OSError):  # a disk that cannot be written has been spoken of already
            part.unlink(missing_ok=True)


def append_line(path: Path, name: str, line: str) -> None:
    """To a text file of a folder, which is made if need be; durable, and never through a link."""
    with wrap_os_errors(f"write {path / name}"):
        path.mkdir(parents=True, exist_ok=True)
        with Folder.open(path) as folder:
            with folder.reopen(name) if folder.kind(name) else folder.create(name) as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # half a line, since a kill
                        file.write(b"\n")
                file.write(f"{line}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            folder.sync()


def _sync(path: Path) -> None:
    if not hasattr(os, "O_DIRECTORY") and path.is_dir():
        return  # Windows opens no folder: a power cut may undo a new name
    writes = 0 if hasattr(os, "O_DIRECTORY") else os.O_RDWR  # which Windows wants for it
    descriptor = os.open(path, os.O_RDONLY | writes | NO_FOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
