"""What stands before every address: the time of arrival, who may ask and how much, what a body may
hold, and headers that keep browsers from running anything but our own page.

A body is whole and in time before anybody reads it as JSON, and what it can become is bounded.
Eight megabytes of `[],[],[]` are 200 megabytes of Python's lists, and a list of errors is larger
still. So values are counted where they stand, in the bytes, at the cost of looking at each once.
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

DEEPEST = 32
"""Lists in lists; nobody has a use for more, and Python ends at a thousand."""
UNCOUNTED = 64 << 10
"""Of each body: small ones are read however many large ones come in at the moment."""

BYTES_PER_VALUE = 32
"""Outside of texts: digits, which are slow to read, and spaces."""


class BodyReader:
    """Reads the bodies of one process, and knows how much of them it holds unfinished."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    async def read(self, receive: Receive, most: int) -> bytes:
        """All of it, at most so many bytes."""
        seconds = self._limits.body_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._whole(receive, most)
        except TimeoutError:
            message = f"the body was not there after {seconds:g} seconds; send it at once"
            raise HttpError(408, message) from None

    async def _whole(self, receive: Receive, most: int) -> bytes:
        body, counted = bytearray(), 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                body += message.get("body", b"")
                if len(body) > most:
                    raise body_too_large(most)
                more = max(0, len(body) - UNCOUNTED) - counted
                self._held, counted = self._held + more, counted + more
                if self._held > self._limits.unfinished_body_bytes:
                    raise HttpError(503, "too many large bodies come in; come again later", 1e3)
                if not message.get("more_body", False):
                    return bytes(body)
        finally:
            self._held -= counted


def body_too_large(most: int) -> HttpError:
    """The refusal of a body that is not read to its end."""
    return HttpError(413, f"a request here may have at most {most:,} bytes; send less at a time")


def replay_body(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body that was read, and then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return waiting.pop() if waiting else await receive()

    return receiving


def check_shape(body: bytes, most: int) -> None:
    """At most so many values, not too deep, and nothing but JSON in UTF-8.

    >>> check_shape(b'{"query": "cats, [dogs]"}', most=3)
    >>> check_shape(b'{"query": ["cat", "dog"]}', most=3)
    Traceback (most recent call last):
    glassrank.serve.error_responses.HttpError: at most 3 values may be in a body here, not 5
    """
    if b"\0" in body:  # UTF-16 and UTF-32, which could hide anything, have these
        raise bad_request("the body is not JSON in UTF-8")
    if b"\\" in body:  # a quote behind a backslash ends no string
        body = body.replace(rb"\\", b"__").replace(rb"\"", b"__")
    plain = np.frombuffer(body, np.uint8)
    inside = np.bitwise_xor.accumulate(plain == ord('"'))
    outside = plain[~inside]
    # One comparison after another: a table of all counts would take eight times the body first.
    values = 1 + sum(int(np.count_nonzero(outside == sign)) for sign in b"[{,:")
    if values > most:
        raise bad_request(f"at most {most:,} values may be in a body here, not {values:,}")
    if len(outside) > BYTES_PER_VALUE * most:
        raise bad_request("the body has too many digits or spaces; send shorter numbers")
    if any((outside == letter).any() for letter in b"NI"):
        raise bad_request("the body is not JSON: NaN and Infinity are no numbers there")
    brackets = outside[np.isin(outside, list(b"[]{}"))]
    depth = np.cumsum(np.where(np.isin(brackets, list(b"[{")), 1, -1))
    if depth.max(initial=0) > DEEPEST:
        raise bad_request(f"lists and objects may be {DEEPEST} deep in each other, not more")


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
    """What must be known of an address before anything is asked there."""

    methods: frozenset[str] = frozenset()
    queue: WorkQueue | None = None
    """Whose places its requests take."""
    body: tuple[int, int] = (0, 0)
    """At most so many bytes, and so many values in them."""
    open: bool = False
    """Needs no key: nothing here tells of documents."""


class RequestMiddleware:
    """An ASGI application around the real one. What is not in `addresses`, letter by letter, is not
    there: no other way to write an address reaches the application, whatever its router makes of
    it."""

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        addresses: Mapping[str, Endpoint],
        pages: frozenset[str],
    ) -> None:
        """`pages` are addresses, too: of open files, which are counted as one."""
        self._app = app
        self._service = service
        self._metrics = service.metrics
        self._bodies = BodyReader(service.limits)
        self._hosts = service.options.known_hosts
        key = service.options.api_key
        self._key = None if key is None else key.encode()
        self._addresses = {**dict.fromkeys(pages, Endpoint(_READ, open=True)), **addresses}
        self._counted = frozenset(addresses)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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

        async def sending(message: Message) -> None:
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
            await self._admit(scope, receive, sending)
        except TooManyPipelined:
            message = "too many requests were sent ahead; wait for a response before the next one"
            await to_response(HttpError(429, message, 0.0))(scope, receive, sending)
        except Gone:
            status = 499  # as other servers count clients that went away
        finally:
            if connection is not None and not is_ended:
                connection.end_request()
            self._count(route, status, state)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        queue = None
        try:
            address = self._allowed(scope)
            most_bytes, most_values = address.body
            if most_bytes and scope["method"] == "POST":
                body = await self._bodies.read(receive, most_bytes)
                check_shape(body, most_values)
                receive = replay_body(body, receive)
                if (connection := current_connection.get()) is not None:
                    connection.end_body()
                # A request has arrived when its last byte has.
                scope["state"]["arrived"] = now()
            # A place is taken by those that can be answered, and not while a body comes in.
            if address.queue is not None and not address.queue.enter():
                message = "as many requests as may wait do so; come again later"
                raise HttpError(429, message, 0.0)
            queue = address.queue
        except HttpError as refusal:
            response = to_response(refusal)
            if refusal.status == HTTPStatus.METHOD_NOT_ALLOWED:
                response.headers["Allow"] = ", ".join(
                    sorted(self._addresses[scope["path"]].methods)
                )
            if _has_body(Headers(scope=scope)):  # which was not read, or not to its end
                response.headers["Connection"] = "close"
            await response(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            if queue is not None:
                queue.leave()

    def _allowed(self, scope: Scope) -> Endpoint:
        """What is asked, if this client may ask it in this way."""
        headers, path = Headers(scope=scope), scope["path"]
        if (
            not path.isprintable()
            or len(scope["query_string"]) > self._service.limits.query_string_bytes
        ):
            raise HttpError(400, "an address must be short, and without control characters")
        chunked = "transfer-encoding" in headers
        if chunked and ("content-length" in headers or scope["http_version"] == "1.0"):
            # Two servers may read two different requests out of this.
            raise HttpError(400, "expected Content-Length or Transfer-Encoding, not both")
        if self._hosts is not None and _host_name(headers.get("host", "")) not in self._hosts:
            message = "this service does not go by that name; start it with --allow-host NAME"
            raise HttpError(HTTPStatus.MISDIRECTED_REQUEST, message)
        address = self._addresses.get(path)
        if address is None or not address.open:
            # Pages of other sites may lead here, but not ask in the name of who reads them.
            if headers.get("sec-fetch-site", "").strip().lower() == "cross-site":
                raise HttpError(403, "pages of other sites may not ask here")
            if self._key is not None and not self._has_key(headers):
                raise HttpError(401, "expected the service's API key as: Authorization: Bearer KEY")
        if address is None:
            raise HttpError(404, f"there is nothing at {path}; /docs lists what there is")
        if scope["method"] not in address.methods:
            raise HttpError(405, f"{path} does not answer to {scope['method']}; see /docs")
        if not _is_at_most(headers.get("content-length", "0"), address.body[0]):
            raise body_too_large(address.body[0])
        return address

    def _has_key(self, headers: Headers) -> bool:
        """Whether the request shows the service's key; never, where there is none."""
        if self._key is None:
            return False
        scheme, _, given = headers.get("authorization", "").encode("latin-1").partition(b" ")
        # In the same time whatever is wrong with it: nothing can be learned from trying.
        return hmac.compare_digest(given.strip(), self._key) and scheme.lower() == b"bearer"

    def _count(self, route: str, status: int, state: dict[str, Any]) -> None:
        ended = now()
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe((ended - state["arrived"]) / 1e3)
        if status == 200 and "done" in state:
            self._service.sent(ended - state["done"])
            if ended - state["arrived"] > state["budget_ms"]:
                self._metrics.overruns.labels(route).inc()


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _is_at_most(number: str, most: int) -> bool:
    """In digits, of which Python reads only so many.

    >>> [_is_at_most(length, 12) for length in ("12", "13", "+1", "9" * 9999)]
    [True, False, False, False]
    """
    return number.isascii() and number.isdecimal() and len(number) < 20 and int(number) <= most


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^][:/@?#\s]+)(:[0-9]{1,5})?", re.IGNORECASE)


def _host_name(host: str) -> str:
    """The name in a `Host` header; empty where it is not one name, with or without a port.

    >>> _host_name("localhost:8000"), _host_name("[::1]:8000"), _host_name("EXAMPLE.org")
    ('localhost', '::1', 'example.org')
    >>> _host_name("localhost:evil.example"), _host_name("[::1]evil.example")
    ('', '')
    """
    named = _HOST.fullmatch(host)
    return named[1].strip("[]").lower() if named else ""
