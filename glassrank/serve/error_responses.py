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


class HttpError(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: int, message: str, retry_after_ms: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_ms = retry_after_ms
        """After which it is worth another try, for refusals that are not the client's fault."""


def bad_request(message: str) -> HttpError:
    """A request that can never be answered as it is."""
    return HttpError(400, message)


def json_error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Cohere's clients read `message`, Jina's read `detail`."""
    return Response(error_body(message), status, headers, media_type="application/json")


def error_body(message: str) -> bytes:
    """The body of every error response."""
    if len(message) > _LONGEST:  # what was wrong may be quoted in it
        message = message[:_LONGEST] + " …"
    return json.dumps({"message": message, "detail": message}).encode()


async def handle_http_error(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, HttpError)
    return to_response(refusal)


def to_response(refusal: HttpError) -> Response:
    """A refusal as the answer that clients understand."""
    if refusal.retry_after_ms is None:
        more = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
        return json_error(refusal.status, refusal.message, more)
    return retry_later(refusal.message, refusal.retry_after_ms, refusal.status)


def retry_later(message: str, retry_after_ms: float = 0.0, status: int = 429) -> Response:
    """Whoever comes again on a new connection may meet a worker that has less to do."""
    seconds = max(1, math.ceil(retry_after_ms / 1e3))
    return json_error(status, message, {"Retry-After": str(seconds), "Connection": "close"})


async def handle_glassrank_error(request: Request, error: Exception) -> Response:
    """Errors for people, from deeper inside."""
    if isinstance(error, LateError):
        return retry_later(str(error), status=503)
    return json_error(400 if isinstance(error, InputError) else 500, str(error))


async def handle_framework_error(request: Request, error: Exception) -> Response:
    """What the guard lets through, and the framework does not."""
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if error.status_code == 400:
        message = "the body is not JSON that can be read"
    return json_error(error.status_code, message, dict(error.headers or {}))


async def handle_invalid_request(request: Request, error: Exception) -> Response:
    """What does not have the form that was expected: the first thing that is wrong with it."""
    assert isinstance(error, RequestValidationError)
    # Where there are two forms, what is wrong with the right one says more than that it is not the
    # other.
    errors = sorted(error.errors()[:_FORMS], key=lambda mistake: mistake["type"].endswith("_type"))
    first = errors[0]
    if first["type"] == "json_invalid":
        where = f"at character {first['loc'][-1]}"
        return json_error(400, f"the body is not JSON {where}: {first['ctx']['error']}")
    if first["loc"] == ("body",):
        return json_error(400, "expected a JSON object, with Content-Type: application/json")
    place = ".".join(str(part) for part in first["loc"][1:] if _is_name(part))
    problem = first["msg"][:1].lower() + first["msg"][1:]
    return json_error(400, f"{place}: {problem}; see /docs")


def _is_name(part: int | str) -> bool:
    """Of a field, and not of one of the forms that it may have.

    >>> [_is_name(part) for part in ("query", 3, "str", "list[constrained-str]")]
    [True, True, False, False]
    """
    return isinstance(part, int) or (part.isidentifier() and part not in ("str", "int", "float"))


async def handle_bug(request: Request, error: Exception) -> Response:
    return json_error(500, "this should not have happened; the service's log says more")


HANDLERS = {
    HttpError: handle_http_error,
    GlassrankError: handle_glassrank_error,
    HTTPException: handle_framework_error,
    RequestValidationError: handle_invalid_request,
    Exception: handle_bug,
}
