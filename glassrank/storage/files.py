"""Reads and writes files; a written file appears complete or not at all. Files may come from
untrusted sources: a line, a file, and what a `.gz` decompresses to have limits far above what is
needed.
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
"""Of files with a document on each line (67 MB); also the limit of a document's text."""
MAX_ROW_BYTES = 1 << 20  # of files with a few ids and numbers on each line
MAX_EXPANSION = 100
"""A `.gz` may decompress to this many times the bytes read of it: texts reach 10, very repetitive
ones 50, a bomb 1,000. The first 4 MB are free."""
FREE_EXPANSION = 1 << 22


def read_lines(
    path: str | Path, encoding: str = "utf-8", max_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, str]]:
    """(line number, line without its end) of a text file, or of its `.gz`. Lines end only at
    `\\n` or `\\r\\n`: a document's text may contain other Unicode line breaks. `encoding` must
    write a line end as one byte, as most do, but not UTF-16."""
    path = Path(path)
    number = 0
    with open_bytes(path) as file:
        while raw := file.readline(max_bytes + 1):
            number += 1
            if len(raw) > max_bytes:
                raise InputError.at(path, number, _describe_limit(max_bytes))
            line = _decode(raw, encoding, path, number)
            if number == 1:
                line = line.removeprefix("\ufeff")  # a byte order mark, as Windows writes
            yield number, line.removesuffix("\n").removesuffix("\r")


def read_first_line(path: str | Path, encoding: str = "utf-8") -> str:
    """The first line that is not blank; empty if there is none."""
    return next((line for _, line in read_lines(path, encoding) if line.strip()), "")


def read_blocks(path: str | Path, size: int = 1 << 20) -> Iterator[bytes]:
    """Blocks of complete lines, of about `size` bytes each, of a file or its `.gz`: for files of
    millions of short lines, where handling each line takes most of the time."""
    path = Path(path)
    with open_bytes(path) as file:
        while block := file.read(size):
            end = file.readline(MAX_ROW_BYTES + 1)
            if len(end) > MAX_ROW_BYTES:
                raise InputError(f"{path}: {_describe_limit(MAX_ROW_BYTES)}", code="too_large")
            yield block + end


def read_file(path: str | Path, max_bytes: int) -> bytes:
    """The content of a regular file, or of its `.gz`. A pipe is refused: reading it would wait."""
    path = Path(path)
    with open_bytes(path, regular=True) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(
            f"{path} is larger than {max_bytes:,} bytes; is it the right file?", code="too_large"
        )
    return content


@contextmanager
def open_bytes(path: Path, *, regular: bool = False) -> Iterator[IO[bytes]]:
    """Opens a file, or the content of its `.gz`, for reading; errors name the file."""
    try:
        if regular and stat.S_IFMT(path.stat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise InputError(f"{path} is a pipe or a device, expected a file")
        with path.open("rb") as file:
            if path.suffix.lower() == ".gz":
                yield cast(IO[bytes], io.BufferedReader(_BoundedGzip(path, file), 1 << 17))
            else:
                yield file
    except FileNotFoundError:
        raise InputError(f"{path} does not exist", code="not_found") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, expected a file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        problem = "the gzip data is damaged or truncated; download or write the file again"
        raise InputError(f"{path}: {problem}", code="corrupt") from None
    except PermissionError:
        raise InputError(
            f"{path} cannot be read: permission denied", code="permission_denied"
        ) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}", code="disk_error"
        ) from None
    except ValueError as error:
        if "\0" not in str(path):
            raise
        raise InputError(f"{str(path)!r} is not the name of a file") from error


class _BoundedGzip(io.RawIOBase):
    """The content of a gzip file, up to `MAX_EXPANSION` times its size."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._content = gzip.GzipFile(fileobj=file)
        self._num_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._content.readinto(buffer)
        self._num_read += count
        if self._num_read > max(FREE_EXPANSION, MAX_EXPANSION * self._file.tell()):
            raise InputError(
                f"{self._path} decompresses to more than {MAX_EXPANSION} times its size; "
                "if you trust it, unpack it first",
                code="too_large",
            )
        return count


def max_content_bytes(path: Path) -> int:
    """The most bytes that a file, or its `.gz`, can hold; known before it is read."""
    size = path.stat().st_size
    return max(FREE_EXPANSION, MAX_EXPANSION * size) if path.suffix.lower() == ".gz" else size


def _decode(raw: bytes, encoding: str, path: Path, number: int) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeError as error:
        position = error.start + 1 if isinstance(error, UnicodeDecodeError) else 1
        name = encoding.upper()
        problem = f"invalid {name} at byte {position} of the line; "
        hint = f"convert the file to {name}, or name the encoding of documents (--encoding)"
        raise InputError.at(path, number, problem + hint) from None
    except LookupError:
        raise _unknown_encoding(encoding) from None


def check_encoding(encoding: str) -> None:
    """Raises an error if Python does not know the encoding."""
    try:
        b"x".decode(encoding, "replace")
    except (LookupError, UnicodeError):  # idna cannot replace what it does not know
        raise _unknown_encoding(encoding) from None


def _unknown_encoding(encoding: str) -> InputError:
    return InputError(f"unknown encoding {encoding!r}; expected a name such as utf-8 or latin-1")


def _describe_limit(max_bytes: int) -> str:
    return f"a line is longer than {max_bytes:,} bytes; is it the right format?"


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """Writes a text file that appears complete or not at all; `.gz` is compressed."""
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
    """A temporary path to write to; the file gets its name when it is complete and durable."""
    if not path.name:
        raise InputError(f"cannot write {path}: it is a folder; name a file")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    in_place = False
    try:
        if path.is_char_device() or path.is_block_device():  # root may replace even /dev/null
            raise InputError(f"cannot write {path}: it is a device; name a file")
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o666))
        yield part
        descriptor = os.open(part, os.O_RDWR | NO_FOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        part.replace(path)
        in_place = True
        with Folder.open(path.parent) as parent:
            parent.sync()
    except OSError as error:
        error.filename = None  # the temporary name means nothing to the user
        if in_place:
            raise disk_error(error, f"make {path} durable", "the file is written") from error
        raise disk_error(error, f"write {path}") from error
    finally:
        with suppress(OSError):  # an error of the disk is raised already
            part.unlink(missing_ok=True)


def append_line(path: Path, name: str, line: str) -> None:
    """Appends a line to a text file of a folder, durably and never through a link; makes both."""
    with wrap_os_errors(f"write {path / name}"):
        path.mkdir(parents=True, exist_ok=True)
        with Folder.open(path) as folder:
            with folder.reopen(name) if folder.kind(name) else folder.create(name) as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":  # half a line, left by a killed process
                        file.write(b"\n")
                file.write(f"{line}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            folder.sync()
