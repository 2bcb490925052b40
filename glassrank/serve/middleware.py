"""Request middleware: arrival time, authentication, limits on bodies, and security headers.

A body is complete, and its JSON is bounded, before anything parses it: eight megabytes of
`[],[],[]` become 200 megabytes of Python lists. So JSON values are counted in the bytes, in one
pass.
"""

import asyncio
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import numpy as np
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassrank.deadline import now
from glassrank.serve.connections import Gone, TooManyPipelined, current_connection
from glassrank.serve.error_responses import HttpError, bad_request, to_response
from glassrank.serve.limits import Limits
from glassrank.serve.service import Service, WorkQueue

MAX_DEPTH = 32
"""Nested lists and objects. Python's own limit is about a thousand."""
UNCOUNTED_BYTES = 64 << 10
"""Of each body: small bodies are read however many large ones arrive at the same time."""
BYTES_PER_VALUE = 32
"""Outside of strings: digits, which are slow to parse, and spaces."""


class BodyReader:
    """Reads the bodies of one process, and counts how much of them it holds."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    async def read(self, receive: Receive, most: int) -> bytes:
        """The whole body, of at most `most` bytes."""
        body, counted = bytearray(), 0
        seconds, is_last = self._limits.body_seconds, False
        try:
            async with asyncio.timeout(seconds):
                while not is_last:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise body_too_large(most)
                    more = max(0, len(body) - UNCOUNTED_BYTES) - counted
                    self._held, counted = self._held + more, counted + more
                    if self._held > self._limits.unfinished_body_bytes:
                        problem = "too many large bodies arrive at once; try again later"
                        raise HttpError(503, problem, 1e3)
                    is_last = not message.get("more_body", False)
            return bytes(body)
        except TimeoutError:
            problem = f"the body did not arrive within {seconds:g} seconds; send it at once"
            raise HttpError(408, problem) from None
        finally:
            self._held -= counted


def body_too_large(most: int) -> HttpError:
    """Status 413, before the body is read to its end."""
    return HttpError(413, f"a request to this endpoint has at most {most:,} bytes; send less")


def replay_body(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body first, and then what the server sends."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_replayed


def check_json_size(body: bytes, most: int) -> None:
    """Raises unless the body is UTF-8 with at most `most` values that are not nested too deep.

    >>> check_json_size(b'{"query": "cats, [dogs]"}', most=3)
    >>> check_json_size(b'{"query": ["cat", "dog"]}', most=3)
    Traceback (most recent call last):
    glassrank.serve.error_responses.HttpError: a body here has at most 3 values, not 5
    """
    if b"\0" in body:  # UTF-16 and UTF-32 have these
        raise bad_request("the body is not JSON in UTF-8")
    if b"\\" in body:  # a quote after a backslash does not end a string
        body = body.replace(rb"\\", b"__").replace(rb"\"", b"__")
    plain = np.frombuffer(body, np.uint8)
    inside = np.bitwise_xor.accumulate(plain == ord('"'))
    outside = plain[~inside]
    # One comparison after another: np.bincount would take eight times the size of the body.
    values = 1 + sum(int(np.count_nonzero(outside == sign)) for sign in b"[{,:")
    if values > most:
        raise bad_request(f"a body here has at most {most:,} values, not {values:,}")
    if len(outside) > BYTES_PER_VALUE * most:
        raise bad_request("the body has too many digits or spaces; send shorter numbers")
    if any((outside == letter).any() for letter in b"NI"):
        raise bad_request("the body is not JSON: NaN and Infinity are not JSON numbers")
    brackets = outside[np.isin(outside, list(b"[]{}"))]
    depth = np.cumsum(np.where(np.isin(brackets, list(b"[{")), 1, -1))
    if depth.max(initial=0) > MAX_DEPTH:
        raise bad_request(f"lists and objects may be nested {MAX_DEPTH} deep, not more")


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
OTHER = "other"
_READ = frozenset(("GET", "HEAD"))


@dataclass(frozen=True)
class Endpoint:
    """What the middleware checks for a path."""

    methods: frozenset[str] = frozenset()
    queue: WorkQueue | None = None
    """The queue that its requests wait in."""
    body: tuple[int, int] = (0, 0)
    """The most bytes of a body, and the most JSON values in it."""
    is_public: bool = False
    """Needs no key: it returns nothing about documents."""


class RequestMiddleware:
    """An ASGI application around the real one. A path must equal one of `endpoints` letter by
    letter: no other spelling reaches the application, whatever its router would accept."""

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        endpoints: Mapping[str, Endpoint],
        pages: frozenset[str],
    ) -> None:
        """`pages` are the paths of public files, which metrics count as one route."""
        self._app = app
        self._service = service
        self._metrics = service.metrics
        self._bodies = BodyReader(service.limits)
        self._hosts = service.options.known_hosts
        key = service.options.api_key
        self._key = None if key is None else key.encode()
        self._endpoints = {**dict.fromkeys(pages, Endpoint(_READ, is_public=True)), **endpoints}
        self._counted = frozenset(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        state = scope.setdefault("state", {})
        state["arrived"] = now()
        connection = current_connection.get()
        status, is_ended = 500, False
        route = scope["path"] if scope["path"] in self._counted else OTHER

        async def send_counted(message: Message) -> None:
            nonlocal status, is_ended
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if connection is not None and connection.is_closing:
                    headers["Connection"] = "close"
            elif connection is not None:
                connection.begin_response(len(message.get("body", b"")))
            await send(message)
            # At once: the next task may belong to the client's next request.
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            if is_last and connection is not None:
                connection.end_request()
                is_ended = True

        try:
            if connection is not None:
                headers = Headers(scope=scope)
                await connection.begin_request(
                    has_key=self._has_key(headers),
                    has_body=_has_body(headers),
                    is_chunked="transfer-encoding" in headers,
                )
                state["arrived"] = now()
            await self._admit(scope, receive, send_counted)
        except TooManyPipelined:
            message = "too many pipelined requests; wait for a response before the next request"
            await to_response(HttpError(429, message, 0.0))(scope, receive, send_counted)
        except Gone:
            status = 499  # nginx's status for clients that disconnect
        finally:
            if connection is not None and not is_ended:
                connection.end_request()
            self._count(route, status, state)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        queue = None
        try:
            endpoint = self._authorize(scope)
            most_bytes, most_values = endpoint.body
            if most_bytes and scope["method"] == "POST":
                body = await self._bodies.read(receive, most_bytes)
                check_json_size(body, most_values)
                receive = replay_body(body, receive)
                if (connection := current_connection.get()) is not None:
                    connection.end_body()
                # A request has arrived when its last byte has.
                scope["state"]["arrived"] = now()
            # A place in the queue is for complete requests, not while a body arrives.
            if endpoint.queue is not None and not endpoint.queue.enter():
                message = "the queue is full; try again later"
                raise HttpError(429, message, 0.0)
            queue = endpoint.queue
        except HttpError as error:
            response = to_response(error)
            if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
                allowed = self._endpoints[scope["path"]].methods
                response.headers["Allow"] = ", ".join(sorted(allowed))
            if _has_body(Headers(scope=scope)):  # which is not read, or not to its end
                response.headers["Connection"] = "close"
            await response(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            if queue is not None:
                queue.leave()

    def _authorize(self, scope: Scope) -> Endpoint:
        """The endpoint of a request; raises if the client may not send this request."""
        headers, path = Headers(scope=scope), scope["path"]
        most = self._service.limits.query_string_bytes
        if not path.isprintable() or len(scope["query_string"]) > most:
            raise bad_request("a URL must be short, and without control characters")
        chunked = "transfer-encoding" in headers
        if chunked and ("content-length" in headers or scope["http_version"] == "1.0"):
            # Two servers may read two different requests from this (request smuggling).
            raise bad_request("expected Content-Length or Transfer-Encoding, not both")
        if self._hosts is not None and _host_name(headers.get("host", "")) not in self._hosts:
            message = "the Host header names an unknown host; start with --allow-host NAME"
            raise HttpError(HTTPStatus.MISDIRECTED_REQUEST, message)
        endpoint = self._endpoints.get(path)
        if endpoint is None or not endpoint.is_public:
            # Other sites may link here, but not send requests in the name of their readers.
            if headers.get("sec-fetch-site", "").strip().lower() == "cross-site":
                raise HttpError(403, "pages of other sites may not send requests here")
            if self._key is not None and not self._has_key(headers):
                raise HttpError(401, "expected the API key as: Authorization: Bearer KEY")
        if endpoint is None:
            raise HttpError(404, f"there is no endpoint {path}; /docs lists them")
        if scope["method"] not in endpoint.methods:
            raise HttpError(405, f"{path} does not support {scope['method']}; see /docs")
        if not _is_at_most(headers.get("content-length", "0"), endpoint.body[0]):
            raise body_too_large(endpoint.body[0])
        return endpoint

    def _has_key(self, headers: Headers) -> bool:
        """Whether the request has the service's key; never, if the service has none."""
        if self._key is None:
            return False
        scheme, _, given = headers.get("authorization", "").encode("latin-1").partition(b" ")
        # In constant time: how long it takes says nothing about the key.
        return hmac.compare_digest(given.strip(), self._key) and scheme.lower() == b"bearer"

    def _count(self, route: str, status: int, state: dict[str, Any]) -> None:
        ended = now()
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe((ended - state["arrived"]) / 1e3)
        if status == 200 and "done" in state:
            self._service.scheduler.learn("sending", 1, ended - state["done"])
            if ended - state["arrived"] > state["budget_ms"]:
                self._metrics.overruns.labels(route).inc()


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _is_at_most(number: str, most: int) -> bool:
    """Whether a Content-Length is at most `most`; Python parses only so many digits.

    >>> [_is_at_most(length, 12) for length in ("12", "13", "+1", "9" * 9999)]
    [True, False, False, False]
    """
    return number.isascii() and number.isdecimal() and len(number) < 20 and int(number) <= most


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^][:/@?#\s]+)(:[0-9]{1,5})?", re.IGNORECASE)


def _host_name(host: str) -> str:
    """The name in a `Host` header without its port; empty if it is malformed.

    >>> _host_name("localhost:8000"), _host_name("[::1]:8000"), _host_name("EXAMPLE.org")
    ('localhost', '::1', 'example.org')
    >>> _host_name("localhost:evil.example"), _host_name("[::1]evil.example")
    ('', '')
    """
    named = _HOST.fullmatch(host)
    return named[1].strip("[]").lower() if named else ""
