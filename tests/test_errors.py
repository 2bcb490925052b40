"""Every error has a stable code."""

import ast
import errno
import pickle
from pathlib import Path

import pytest

import glassrank
from glassrank.deadline import Deadline, LateError
from glassrank.errors import (
    ERROR_CODES,
    BusyError,
    CorruptError,
    DuplicateIdError,
    GlassrankError,
    InputError,
    disk_error,
    wrap_file_errors,
    wrap_os_errors,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (GlassrankError("x"), "failed"),
        (InputError("x"), "bad_input"),
        (InputError("x", code="not_found"), "not_found"),
        (InputError.at("f", 1, "x"), "bad_line"),
        (DuplicateIdError("d"), "duplicate_id"),
        (CorruptError("x"), "corrupt"),
        (BusyError("x"), "busy"),
        (LateError("x"), "too_late"),
    ],
)
def test_code_of_each_kind(error: GlassrankError, code: str) -> None:
    assert error.code == code
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.code, str(copy)) == (type(error), code, str(error))


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "disk_full"), (errno.EACCES, "permission_denied"), (errno.EIO, "disk_error")],
)
def test_code_of_system_errors(number: int, code: str) -> None:
    with pytest.raises(GlassrankError) as raised, wrap_os_errors("write x"):
        raise OSError(number, "why")
    assert raised.value.code == code
    assert str(raised.value) == "cannot write x: why"


def test_disk_error_with_a_hint_says_what_to_do() -> None:
    error = disk_error(OSError(errno.ENOSPC, "No space", "/tmp/a"), "write x", "x is unchanged")
    assert str(error) == (
        "cannot write x (/tmp/a): No space; x is unchanged, so make room and try again"
    )


def test_file_errors_keep_their_code() -> None:
    path = Path("/m")
    with (
        pytest.raises(CorruptError, match=r"/m: it is cut\?") as raised,
        wrap_file_errors(path, ""),
    ):
        raise CorruptError("it is cut\x1b", code="too_large")
    assert raised.value.code == "too_large"
    message = r"/m: no model \(KeyError: 'a'\)"
    with pytest.raises(InputError, match=message), wrap_file_errors(path, "no model"):
        {}["a"]


def test_deadline_raises_too_late() -> None:
    with pytest.raises(LateError) as raised:
        Deadline.after(0.0).check("a test")
    assert raised.value.code == "too_late"


def test_codes_in_the_source_are_documented() -> None:
    codes = set()
    for path in Path(glassrank.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and str(getattr(node.func, "id", "")).endswith("Error"):
                codes |= {
                    keyword.value.value
                    for keyword in node.keywords
                    if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
                }
    assert codes <= set(ERROR_CODES)
