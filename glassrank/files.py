"""Reading and writing files so that nothing half-written is ever left behind."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from glassrank.errors import GlassrankError, InputError


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """(line number, line without its end) of a UTF-8 text file, or of its `.gz`.

    Lines end at `\\n` or `\\r\\n` only, as in every format of the field: other Unicode line breaks
    may stand inside a document's text.
    """
    path = Path(path)
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise InputError.at(
                        path, number, f"invalid UTF-8 at byte {error.start + 1} of the line"
                    ) from None
                if number == 1:
                    line = line.removeprefix("\ufeff")  # a byte order mark, as Windows writes
                yield number, line.removesuffix("\n").removesuffix("\r")
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, expected a file") from None
    except PermissionError:
        raise InputError(f"{path} cannot be read: permission denied") from None
    except (gzip.BadGzipFile, EOFError):
        raise InputError.at(path, number + 1, "the gzip data is damaged or cut off") from None


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """A text file that appears whole or not at all; `.gz` is compressed."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with (
            gzip.open(part, "wt", encoding="utf-8", newline="\n")
            if path.suffix == ".gz"
            else part.open("w", encoding="utf-8", newline="\n")
        ) as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise GlassrankError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
