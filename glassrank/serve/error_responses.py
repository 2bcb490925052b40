"""Error responses: a status, a code, a message, and when to try again."""

import json
import math
from collections.abc import Mapping

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from glassrank.deadline import LateError
from glassrank.errors import GlassrankError, InputError

CODES = {
    400: "bad_input",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "body_timeout",
    413: "too_large",
    421: "unknown_host",
    429: "too_many_requests",
    500: "internal_error",
    503: "overloaded",
}
"""The `code` of a response by its status. A `GlassrankError` has a code of its own."""
_MAX_CHARS = 1_000
_MAX_ERRORS = 4


class HttpError(Exception):
    """The request gets an error response; `retry_after_ms` is for faults of the service, and the
    code follows from the status unless it is given."""

    def __init__(
        self, status: int, message: str, retry_after_ms: float | None = None, code: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.code = code or CODES.get(status, CODES[500])


def bad_request(message: str) -> HttpError:
    """Status 400."""
    return HttpError(400, message)


def error_body(message: str, code: str) -> bytes:
    """Cohere's clients read `message`, Jina's read `detail`."""
    if len(message) > _MAX_CHARS:  # a message may quote the request
        message = message[:_MAX_CHARS] + " …"
    return json.dumps({"code": code, "message": message, "detail": message}).encode()


def to_response(error: HttpError, headers: Mapping[str, str] | None = None) -> Response:
    """The response to send for an error."""
    headers = dict(headers or {})
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after_ms is not None:
        # A new connection may reach a worker that has less to do.
        seconds = max(1, math.ceil(error.retry_after_ms / 1e3))
        headers |= {"Retry-After": str(seconds), "Connection": "close"}
    body = error_body(error.message, error.code)
    return Response(body, error.status, headers, media_type="application/json")


async def _handle_http_error(request: Request, error: HttpError) -> Response:
    return to_response(error)


async def _handle_glassrank_error(request: Request, error: GlassrankError) -> Response:
    if isinstance(error, LateError):
        return to_response(HttpError(503, str(error), 0.0, error.code))
    status = 400 if isinstance(error, InputError) else 500
    return to_response(HttpError(status, str(error), code=error.code))


async def _handle_framework_error(request: Request, error: HTTPException) -> Response:
    """What the middleware accepts, and the framework does not."""
    message = str(error.detail)
    if error.status_code == 400:
        message = "the body is not JSON that can be read"
    return to_response(HttpError(error.status_code, message), error.headers)


async def _handle_invalid_request(request: Request, error: RequestValidationError) -> Response:
    """A request that does not match its schema: names the first field that is wrong."""
    # Where a field has two types, an error in the matching one says more than "not the other".
    errors = sorted(error.errors()[:_MAX_ERRORS], key=lambda each: each["type"].endswith("_type"))
    first = errors[0]
    if first["type"] == "json_invalid":
        where = f"at character {first['loc'][-1]}"
        message = f"the body is not JSON {where}: {first['ctx']['error']}"
    elif first["loc"] == ("body",):
        message = "expected a JSON object, with Content-Type: application/json"
    else:
        place = ".".join(str(part) for part in first["loc"][1:] if _is_field(part))
        message = f"{place}: {first['msg'][:1].lower() + first['msg'][1:]}; see /docs"
    return to_response(bad_request(message))


def _is_field(part: int | str) -> bool:
    """Whether a part of a location names a field, not one of the types that it may have.

    >>> [_is_field(part) for part in ("query", 3, "str", "list[constrained-str]")]
    [True, True, False, False]
    """
    return isinstance(part, int) or (part.isidentifier() and part not in ("str", "int", "float"))


async def _handle_bug(request: Request, error: Exception) -> Response:
    message = "an internal error occurred; the service's log has the details"
    return to_response(HttpError(500, message))


HANDLERS = {
    HttpError: _handle_http_error,
    GlassrankError: _handle_glassrank_error,
    HTTPException: _handle_framework_error,
    RequestValidationError: _handle_invalid_request,
    Exception: _handle_bug,
}
