"""Errors for users: each is one sentence, with a stable code: what is wrong, what was expected,
what to do. Any other exception is a bug.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ERROR_CODES = {
    "failed": "the input is fine, but the work cannot be done",
    "bad_input": "an option, a parameter or a file is wrong",
    "bad_line": "a line of a file does not have the expected format",
    "bad_filter": "a `where` filter cannot be read, or does not fit the documents",
    "too_large": "the input is larger than the limit",
    "not_found": "a file, folder or document does not exist",
    "already_exists": "the target exists, and replacing it is not allowed",
    "duplicate_id": "two documents have the same id",
    "permission_denied": "the system does not let this process read or write a path",
    "missing_package": "an optional package is not installed",
    "wrong_version": "a folder was made by another version",
    "first_stage_failed": "the first stage raises an error, or returns what cannot be ranked",
    "too_late": "the time is not enough for work of which a part is of no use",
    "busy": "another process is writing; try again",
    "corrupt": "a file is not as it was written",
    "disk_full": "there is no room on the disk",
    "disk_error": "the disk cannot be read or written",
}
"""Every `GlassrankError.code`, and what it means. Programs may rely on codes; messages change."""

_MAX_CHARS, _MAX_CHARS_OF_FILE_ERROR = 2000, 500
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters with which a document could control a terminal, or reverse text."""


def sanitize(text: str) -> str:
    """Replaces unsafe characters one by one, so that offsets into the text stay valid."""
    return UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def describe_type(value: object) -> str:
    """
    >>> describe_type(None), describe_type(3), describe_type({})
    ('None', 'an int', 'a dict')
    """
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


class GlassrankError(Exception):
    """The input is fine, but the work cannot be done."""

    exit_status = 1
    code = "failed"
    """One of `ERROR_CODES`."""

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        # A quoted part may be lines, or megabytes, of somebody's file: keep its two ends.
        message = message.replace("\n", " ").replace("\r", " ")
        if len(message) > _MAX_CHARS:
            message = f"{message[: _MAX_CHARS // 2]} … {message[-_MAX_CHARS // 2 :]}"
        super().__init__(message)
        if code is not None:
            self.code = code


class InputError(GlassrankError):
    """Bad input: a wrong file, option, or id."""

    exit_status = 2
    code = "bad_input"

    @classmethod
    def at(cls, path: str | Path, line: int, problem: str) -> "InputError":
        """
        >>> InputError.at("docs.tsv", 3, "expected 2 columns, found 1").args[0]
        'docs.tsv:3: expected 2 columns, found 1'
        """
        return cls(f"{path}:{line}: {problem}", code="bad_line")


@contextmanager
def needs_extra(name: str, what: str = "this") -> Iterator[None]:
    """Imports packages of this extra of glassrank; says what to install if one is missing."""
    try:
        yield
    except ImportError as error:
        # A package that imports others by itself may not say which one is missing.
        missing = f"a package that is missing ({error})"
        if error.name:
            missing = f"the package {error.name}"
        raise InputError(
            f"{what} needs {missing}; install it: pip install 'glassrank[{name}]'",
            code="missing_package",
        ) from error


class DuplicateIdError(InputError):
    """Two documents have the same id."""

    code = "duplicate_id"

    def __init__(self, doc_id: str, where: str = "", *, indexed: bool = False) -> None:
        """`indexed` says that one of them is in the index already."""
        self.doc_id = doc_id
        self.indexed = indexed
        self._where = where
        problem = (
            "is in the index already; use --replace (replace=True) to replace it"
            if indexed
            else "appears twice; ids must be unique"
        )
        super().__init__(f"{where}{': ' if where else ''}document id {doc_id!r} {problem}")

    def __reduce__(self) -> tuple[Any, ...]:  # to and from another process
        return partial(DuplicateIdError, indexed=self.indexed), (self.doc_id, self._where)


class DiskError(GlassrankError):
    """The disk is full, damaged or not writable. It may work later."""

    code = "disk_error"


class BusyError(GlassrankError):
    """Another process is writing. It works later."""

    code = "busy"


class CorruptError(GlassrankError):
    """A file is not as it was written: a flipped byte, a cut tail."""

    code = "corrupt"


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_CODES_AND_REMEDIES = {
    **dict.fromkeys(_FULL, ("disk_full", "make room and try again")),
    **dict.fromkeys(_DENIED, ("permission_denied", "choose a path that you may write to")),
}


@contextmanager
def wrap_os_errors(action: str, hint: str = "") -> Iterator[None]:
    """Raises an OSError from inside as a `DiskError`: `cannot ACTION: WHY; HINT`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, action, hint) from error


def disk_error(error: OSError, action: str, hint: str = "") -> DiskError:
    """The error `cannot ACTION: WHY; HINT, so REMEDY`. A hint means that something is written."""
    path = f" ({error.filename})" if error.filename and str(error.filename) not in action else ""
    code, remedy = _CODES_AND_REMEDIES.get(error.errno or 0, (None, ""))
    if hint:
        hint = f"; {hint}, so {remedy}" if remedy else f"; {hint}"
    return DiskError(f"cannot {action}{path}: {error.strerror or error}{hint}", code=code)


@contextmanager
def wrap_file_errors(path: Path, problem: str) -> Iterator[None]:
    """Makes one sentence about `path` of every error that the content of its files leads to."""
    try:
        yield
    except OSError:
        raise
    except GlassrankError as error:
        text = str(error)
        text = _make_printable(text if str(path) in text else f"{path}: {text}")
        raise type(error)(text, code=error.code) from error
    except Exception as error:  # a value that nobody thought of
        text = f"{path}: {problem} ({type(error).__name__}: {error})"
        raise InputError(_make_printable(text)) from error


def _make_printable(text: str) -> str:
    """Shortens it, and replaces what a terminal would obey: names in files may be anything."""
    if len(text) > _MAX_CHARS_OF_FILE_ERROR:
        text = f"{text[:_MAX_CHARS_OF_FILE_ERROR]}..."
    return "".join(char if char.isprintable() else "?" for char in text)
