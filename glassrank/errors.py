"""Errors meant for people: one sentence that says what was expected, what came, what to do.

The command line prints them as they are and ends with `exit_status`; anything else is a bug.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

_LONGEST, _LONGEST_ABOUT_FOLDER = 2000, 500
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters with which a document could steer a terminal, or turn text around."""


def safe(text: str) -> str:
    """As long as the text, so that places in it stay true."""
    return UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def kind(value: object) -> str:
    """What something is, for a sentence.

    >>> kind(None), kind(3), kind({})
    ('None', 'an int', 'a dict')
    """
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


class GlassrankError(Exception):
    """A failed job: the input was fine, the work could not be done."""

    exit_status = 1

    def __init__(self, message: str = "") -> None:
        # What is quoted may be lines, or megabytes, of somebody's file: its two ends will do.
        message = message.replace("\n", " ").replace("\r", " ")
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
        super().__init__(message)


class InputError(GlassrankError):
    """Bad input: a wrong file, option, or id."""

    exit_status = 2

    @classmethod
    def at(cls, path: str | Path, line: int, problem: str) -> "InputError":
        """
        >>> InputError.at("docs.tsv", 3, "expected 2 columns, found 1").args[0]
        'docs.tsv:3: expected 2 columns, found 1'
        """
        return cls(f"{path}:{line}: {problem}")


class DuplicateIdError(InputError):
    """Two documents with one id."""

    def __init__(self, doc_id: str, where: str = "", *, indexed: bool = False) -> None:
        """`indexed` says that one of them is in the index already."""
        self.doc_id = doc_id
        self.indexed = indexed
        self._where = where
        problem = (
            "is in the index already; with --replace (replace=True) the new one takes its place"
            if indexed
            else "appears twice; ids must be unique"
        )
        super().__init__(f"{where}{': ' if where else ''}document id {doc_id!r} {problem}")

    def __reduce__(self) -> tuple[Any, ...]:  # from another process
        return partial(DuplicateIdError, indexed=self.indexed), (self.doc_id, self._where)


class DiskError(GlassrankError):
    """A disk that is full, damaged or closed to us; that may pass."""


class BusyError(GlassrankError):
    """Another process is at it; that passes."""


class CorruptError(GlassrankError):
    """A file that is not what was written: a flipped byte, a cut tail."""


_FULL, _CLOSED = "make room and try again", "choose a path that you may write to"
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _CLOSED),
}
"""What helps, by the system's error, where something was to be written."""


@contextmanager
def explained(doing: str, hint: str = "") -> Iterator[None]:
    """A disk that is full, damaged or closed to us, as one sentence: `cannot DOING: WHY; HINT`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, doing, hint) from error


def disk_error(error: OSError, doing: str, hint: str = "") -> DiskError:
    """What a system's error means: `cannot DOING: WHY; HINT, so REMEDY`."""
    where = f" ({error.filename})" if error.filename and str(error.filename) not in doing else ""
    remedy = _REMEDIES.get(error.errno or 0, "") if hint else ""
    told = f"{hint}, so {remedy}" if remedy else hint
    return DiskError(
        f"cannot {doing}{where}: {error.strerror or error}{'; ' if told else ''}{told}"
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
    short = text if len(text) <= _LONGEST_ABOUT_FOLDER else f"{text[:_LONGEST_ABOUT_FOLDER]}..."
    return "".join(letter if letter.isprintable() else "?" for letter in short)
