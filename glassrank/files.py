"""Reading and writing files so that nothing half-written is ever left behind."""

import gzip
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from glassrank.errors import InputError
from glassrank.folders import Folder, disk_error, explained

_DAMAGED = "the gzip data is damaged or cut off; fetch or write the file again"


def read_lines(path: str | Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """(line number, line without its end) of a text file, or of its `.gz`.

    Lines end at `\\n` or `\\r\\n` only, as in every format of the field: other Unicode line breaks
    may stand inside a document's text. `encoding` is any that writes a line end as one byte: UTF-8,
    Latin-1, Windows' and most others, but not UTF-16.
    """
    path = Path(path)
    number = 0
    with _opened(path) as file:
        try:
            for number, raw in enumerate(file, 1):
                try:
                    line = raw.decode(encoding)
                except UnicodeDecodeError as error:
                    raise InputError.at(
                        path,
                        number,
                        f"invalid {encoding.upper()} at byte {error.start + 1} of the line; "
                        f"convert the file to {encoding.upper()}, or name its encoding",
                    ) from None
                except LookupError:
                    raise InputError(
                        f"unknown encoding {encoding!r}; expected a name such as utf-8 or latin-1"
                    ) from None
                if number == 1:
                    line = line.removeprefix("\ufeff")  # a byte order mark, as Windows writes
                yield number, line.removesuffix("\n").removesuffix("\r")
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise InputError.at(path, number + 1, _DAMAGED) from None


def read_blocks(path: str | Path, size: int = 1 << 20) -> Iterator[bytes]:
    """The file, or what its `.gz` holds, in blocks of whole lines of about `size` bytes.

    For files of millions of short lines, where handling each on its own takes most of the time.
    """
    path = Path(path)
    with _opened(path) as file:
        try:
            while block := file.read(size):
                yield block + file.readline()
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise InputError(f"{path}: {_DAMAGED}") from None


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, expected a file") from None
    except PermissionError:
        raise InputError(f"{path} cannot be read: permission denied") from None


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """A text file that appears whole or not at all; `.gz` is compressed."""
    path = Path(path)
    with (
        whole_file(path) as part,
        gzip.open(part, "wt", encoding="utf-8", newline="\n")
        if path.suffix == ".gz"
        else part.open("w", encoding="utf-8", newline="\n") as file,
    ):
        yield file


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to; the file gets its own name when it is complete and durable."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    in_place = False
    try:
        if path.is_char_device() or path.is_block_device():  # root may replace even /dev/null
            raise InputError(f"cannot write {path}: it is a device; name a file")
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
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
        with suppress(OSError):
            part.unlink(missing_ok=True)


def append_line(path: Path, name: str, line: str) -> None:
    """To a text file of a folder, which is made if need be; durable, and never through a link."""
    with explained(f"write {path / name}"):
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
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
