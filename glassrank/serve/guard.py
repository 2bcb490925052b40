"""What stands before every address: the time of arrival, who may ask and how much, and headers that
keep browsers from running anything but our own page."""

import hmac
from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassrank.rank.budget import now
from glassrank.serve.refusals import as_json, busy
from glassrank.serve.service import Service

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


class Guard:
    """An ASGI application around the real one. `routes` are the addresses that are counted by name.
    Of these, `open_routes` need no key, and neither does the page, which holds no documents."""

    def __init__(
        self, app: ASGIApp, service: Service, routes: frozenset[str], open_routes: frozenset[str]
    ) -> None:
        self._app = app
        self._service = service
        self._metrics = service.metrics
        self._body_bytes = service.limits.body_bytes
        self._hosts = service.options.known_hosts
        key = service.options.api_key
        self._key = None if key is None else key.encode()
        self._lanes = service.lanes
        self._routes = routes
        self._free = frozenset((OTHER, *open_routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["arrived"] = now()
        status = 500
        route = scope["path"] if scope["path"] in self._routes else OTHER

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            await self._admit(scope, route, receive, sending)
        finally:
            self._count(route, status, scope["state"])

    async def _admit(self, scope: Scope, route: str, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope, route)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        lane = self._lanes.get(route)
        # A place is taken before anything is read: to turn away is cheap, to read is not.
        if lane is not None and not lane.enter():
            await busy("as many requests as may wait do so; come again later")(scope, receive, send)
            return
        try:
            await self._app(scope, self._counted(receive), send)
        finally:
            if lane is not None:
                lane.leave()

    def _refusal(self, scope: Scope, route: str) -> Response | None:
        headers = Headers(scope=scope)
        if self._hosts is not None and _host_name(headers.get("host", "")) not in self._hosts:
            return as_json(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this service does not go by that name; start it with --allow-host NAME",
            )
        if self._key is not None and route not in self._free:
            scheme, _, given = headers.get("authorization", "").encode("latin-1").partition(b" ")
            # In the same time whatever is wrong with it: nothing can be learned from trying.
            if not hmac.compare_digest(given.strip(), self._key) or scheme.lower() != b"bearer":
                return as_json(
                    401,
                    "expected the service's API key as: Authorization: Bearer KEY",
                    {"WWW-Authenticate": "Bearer"},
                )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._body_bytes:
            return as_json(413, self._too_large(), {"Connection": "close"})
        return None

    def _counted(self, receive: Receive) -> Receive:
        """A body may come in pieces without saying how long it is."""
        read = 0

        async def receiving() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._body_bytes:
                raise HTTPException(413, self._too_large(), {"Connection": "close"})
            return message

        return receiving

    def _too_large(self) -> str:
        return f"a request may have at most {self._body_bytes:,} bytes; send less at a time"

    def _count(self, route: str, status: int, state: dict[str, Any]) -> None:
        ended = now()
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe((ended - state["arrived"]) / 1e3)
        if status == 200 and "done" in state:
            self._service.sent(ended - state["done"])
            if ended - state["arrived"] > state["budget_ms"]:
                self._metrics.overruns.labels(route).inc()


def _host_name(host: str) -> str:
    """
    >>> _host_name("localhost:8000"), _host_name("[::1]:8000"), _host_name("EXAMPLE.org")
    ('localhost', '::1', 'example.org')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
