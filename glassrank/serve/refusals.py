"""What is answered when a request is not: a status, a sentence, and when to come again."""

import json
import math

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from glassrank.deadline import LateError
from glassrank.errors import GlassrankError, InputError

_LONGEST = 1_000
_FORMS = 4


class RefusedError(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: int, message: str, wait_ms: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.wait_ms = wait_ms
        """After which it is worth another try, for refusals that are not the client's fault."""


def bad(message: str) -> RefusedError:
    """A request that can never be answered as it is."""
    return RefusedError(400, message)


def as_json(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Cohere's clients read `message`, Jina's read `detail`."""
    return Response(refusal_body(message), status, headers, media_type="application/json")


def refusal_body(message: str) -> bytes:
    """The body of every error response."""
    if len(message) > _LONGEST:  # what was wrong may be quoted in it
        message = message[:_LONGEST] + " …"
    return json.dumps({"message": message, "detail": message}).encode()


async def answer_refusal(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, RefusedError)
    return refused(refusal)


def refused(refusal: RefusedError) -> Response:
    """A refusal as the answer that clients understand."""
    if refusal.wait_ms is None:
        more = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
        return as_json(refusal.status, refusal.message, more)
    return busy(refusal.message, refusal.wait_ms, refusal.status)


def busy(message: str, wait_ms: float = 0.0, status: int = 429) -> Response:
    """Whoever comes again on a new connection may meet a worker that has less to do."""
    seconds = max(1, math.ceil(wait_ms / 1e3))
    return as_json(status, message, {"Retry-After": str(seconds), "Connection": "close"})


async def answer_ours(request: Request, error: Exception) -> Response:
    """Errors for people, from deeper inside."""
    if isinstance(error, LateError):
        return busy(str(error), status=503)
    return as_json(400 if isinstance(error, InputError) else 500, str(error))


async def answer_framework(request: Request, error: Exception) -> Response:
    """What the guard lets through, and the framework does not."""
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if error.status_code == 400:
        message = "the body is not JSON that can be read"
    return as_json(error.status_code, message, dict(error.headers or {}))


async def answer_invalid(request: Request, error: Exception) -> Response:
    """What does not have the form that was expected: the first thing that is wrong with it."""
    assert isinstance(error, RequestValidationError)
    # Where there are two forms, what is wrong with the right one says more than that it is not the
    # other.
    errors = sorted(error.errors()[:_FORMS], key=lambda mistake: mistake["type"].endswith("_type"))
    first = errors[0]
    if first["type"] == "json_invalid":
        where = f"at character {first['loc'][-1]}"
        return as_json(400, f"the body is not JSON {where}: {first['ctx']['error']}")
    if first["loc"] == ("body",):
        return as_json(400, "expected a JSON object, with Content-Type: application/json")
    place = ".".join(str(part) for part in first["loc"][1:] if _is_name(part))
    problem = first["msg"][:1].lower() + first["msg"][1:]
    return as_json(400, f"{place}: {problem}; see /docs")


def _is_name(part: int | str) -> bool:
    """Of a field, and not of one of the forms that it may have.

    >>> [_is_name(part) for part in ("query", 3, "str", "list[constrained-str]")]
    [True, True, False, False]
    """
    return isinstance(part, int) or (part.isidentifier() and part not in ("str", "int", "float"))


async def answer_bug(request: Request, error: Exception) -> Response:
    return as_json(500, "this should not have happened; the service's log says more")


HANDLERS = {
    RefusedError: answer_refusal,
    GlassrankError: answer_ours,
    HTTPException: answer_framework,
    RequestValidationError: answer_invalid,
    Exception: answer_bug,
}
