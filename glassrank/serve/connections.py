"""Limits on client connections: how many there are, how long each step takes, and which to close.

uvicorn and h11 do not bound how many connections a client holds, how many requests it pipelines, or
how long it leaves a response unread; nor do hypercorn and granian (decision 32). `Connection` wraps
uvicorn's protocol and does that. It uses only asyncio's `Protocol` and `Transport`. What only the
application knows (that a request is complete, has the key, or has its whole response) the
middleware tells it through `current_connection`.

If there are too many connections, the first to close are

1. those that leave a response unread,
2. those that are delayed because they send too fast,
3. those without the key that have not sent a whole request, the longest silent first,
4. those with the key that have not sent a whole request.

If there is none of these, the new connection is closed. A delayed connection costs nothing, while a
closed one comes back: so clients that send too fast are delayed, not closed.
"""

import asyncio
import enum
import socket
import struct
from collections import OrderedDict
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from glassrank.serve.error_responses import CODES, error_body
from glassrank.serve.limits import Limits

try:
    import resource

    _OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
except ImportError:  # Windows has no such limit
    _OPEN_FILES = -1

_SWEEP_SECONDS = 0.25
_STALLED_SECONDS = 0.5
"""After which a client that has read nothing of its response counts as stalled."""
_PIPELINE_DELAY_SECONDS = 0.05
_LONGEST_DELAY_SECONDS = 1.0
_SEND_BUFFER_BYTES = 128 << 10
"""The kernel's buffer of a connection: its content counts as read by the client."""
_CLOSING_SECONDS = 0.3
"""When the service ends, for requests that are on their way."""
_KEYLESS_BURST_SECONDS = 2.0


class Gone(Exception):  # noqa: N818
    """The client has disconnected."""


class TooManyPipelined(Exception):  # noqa: N818
    """The client has pipelined too many requests."""


class RequestStep(enum.Enum):
    """What a connection is doing."""

    HEADERS = "no request, or not all of its headers"
    BODY = "a request whose body is arriving"
    HELD = "a request that is delayed"
    RESPONSE = "a complete request that is being processed"


current_connection: ContextVar["Connection | None"] = ContextVar("connection", default=None)
"""Of the current request; None in a test without sockets."""


class Connections:
    """The open connections of one process."""

    def __init__(self, limits: Limits, *, has_key: bool) -> None:
        """`has_key`: whether the service has an API key that clients can send."""
        self.limits = limits
        self.has_key = has_key
        self.closing = False
        files = _OPEN_FILES // 4 if _OPEN_FILES > 0 else limits.connections
        self._most = min(limits.connections, files)
        self._open: set[Connection] = set()
        self._next_request: OrderedDict[str, float] = OrderedDict()
        self._sweeping: asyncio.TimerHandle | None = None

    def add(self, connection: "Connection") -> None:
        """Adds a connection; closes another if there are too many."""
        self._open.add(connection)
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(_SWEEP_SECONDS, self._sweep)
        open_ = [each for each in self._open if not each.transport.is_closing()]
        neighbours = [
            each for each in open_ if each.address == connection.address and not each.has_key
        ]
        if len(neighbours) > self.limits.connections_per_address:
            self._make_room(neighbours, connection)
        elif len(open_) > self._most:
            self._make_room(open_, connection)

    def remove(self, connection: "Connection") -> None:
        """Removes a closed connection."""
        self._open.discard(connection)

    def make_room_for(self, connection: "Connection", size: int) -> None:
        """Closes those that have read nothing for longest, until there is room for `size`."""
        others = self._open - {connection}
        unread = {each: left for each in others if (left := each.unread())}
        total = sum(unread.values()) + size
        for each in sorted(unread, key=lambda each: each.unread_since):
            if total <= self.limits.unread_bytes:
                return
            total -= unread[each]
            each.abort()

    def reserve_request(self, address: str, now: float) -> float:
        """Seconds until this address may send another request without the key."""
        rate = self.limits.keyless_requests_per_second
        earliest = now - _KEYLESS_BURST_SECONDS
        at = max(self._next_request.pop(address, earliest), earliest) + 1 / rate
        self._next_request[address] = at  # most recently used last
        while len(self._next_request) > self.limits.addresses:
            self._next_request.popitem(last=False)
        return max(0.0, at - now)

    def release_request(self, address: str) -> None:
        """Gives back the turn of a client that has disconnected before it."""
        if address in self._next_request:
            self._next_request[address] -= 1 / self.limits.keyless_requests_per_second

    def _make_room(self, among: list["Connection"], newcomer: "Connection") -> None:
        costs = {each: each.cost_to_close() for each in among if each is not newcomer}
        known = {each: cost for each, cost in costs.items() if cost is not None}
        min(known, key=lambda each: known[each], default=newcomer).abort()

    def _sweep(self) -> None:
        self._sweeping = None
        for connection in list(self._open):
            connection.check_time()
            self._sweeping = self._sweeping or connection.loop.call_later(
                _SWEEP_SECONDS, self._sweep
            )


class Connection(asyncio.Protocol):
    """One client's connection: a wrapper of uvicorn's protocol."""

    def __init__(
        self,
        connections: Connections,
        *,
        server_state: Any,
        _loop: asyncio.AbstractEventLoop | None = None,
        **given: Any,
    ) -> None:
        """The arguments of uvicorn's protocol, after `connections`."""
        self.loop = _loop or asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.address = ""
        self.has_key = False
        self._connections = connections
        self._limits = connections.limits
        self._all = server_state.connections
        self._http = _JsonErrors(server_state=server_state, _loop=self.loop, **given)
        self._step = RequestStep.HEADERS
        self._since = self.loop.time()
        self._requests = 0
        self._pipelined = 0
        self._received = False
        """Whether data arrived since the last response."""
        self._is_chunked = False
        self._chunk_lines = 0
        self._unread_bytes = 0
        self.unread_since = 0.0
        """When the client last read something of a response."""
        self._closing_since: float | None = None
        self._lost = asyncio.Event()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A new client."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._http.connection_made(transport)
        # uvicorn shuts down the members of this set: it must call us, not its own protocol.
        self._all.discard(self._http)
        self._all.add(self)
        self._connections.add(self)
        if self._connections.closing:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._lost.set()
        self._connections.remove(self)
        self._all.discard(self)
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A part of a request; aborts if there are too many chunks."""
        self._received = True
        if self._is_chunked and self._step is RequestStep.BODY:
            # Each chunk has two line ends; many small chunks cost far more than their bytes.
            self._chunk_lines += data.count(b"\r\n")
            if self._chunk_lines > 2 * self._limits.body_chunks:
                self.abort()
                return
        token = current_connection.set(self)
        try:
            self._http.data_received(data)
        except h11.ProtocolError:  # not HTTP, and too late for an error response
            self.abort()
        finally:
            current_connection.reset(token)

    def eof_received(self) -> None:
        """The client sends no more."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        self._http.resume_writing()

    # Called by uvicorn

    def shutdown(self) -> None:
        """The service ends: responds to requests that have arrived or are on their way."""
        self._closing_since = self.loop.time()
        if self._step in (RequestStep.HELD, RequestStep.RESPONSE):
            self._close_after_response()
        else:
            self.loop.call_later(_CLOSING_SECONDS, self.check_time)

    # Called by the middleware

    async def begin_request(self, *, has_key: bool, has_body: bool, is_chunked: bool) -> None:
        """Call this when the headers of a request have arrived. Delays a client that pipelines
        requests, or sends too many without the key. Raises `Gone` or `TooManyPipelined`."""
        self.has_key = self.has_key or has_key
        self._is_chunked, self._chunk_lines = is_chunked, 0
        self._requests += 1
        self._pipelined = 0 if self._received else self._pipelined + 1
        self._received = False
        if self._closing_since is not None:
            self._close_after_response()
        delay = min(_LONGEST_DELAY_SECONDS, _PIPELINE_DELAY_SECONDS * self._pipelined)
        is_limited = self._connections.has_key and not has_key
        if is_limited:
            now = self.loop.time()
            delay = max(delay, self._connections.reserve_request(self.address, now))
        if delay or self.unread():
            self._enter(RequestStep.HELD)
            if self._pipelined > self._limits.pipelined_requests:
                raise TooManyPipelined
            try:
                await self._wait(delay)
                while self.unread():
                    await self._wait(_SWEEP_SECONDS)
            except Gone:
                if is_limited:
                    self._connections.release_request(self.address)
                raise
        if self.transport.is_closing():
            await self._lost.wait()  # uvicorn logs an error for a client that is still there
            raise Gone
        self._enter(RequestStep.BODY if has_body else RequestStep.RESPONSE)

    async def _wait(self, seconds: float) -> None:
        """Raises `Gone` as soon as the client has disconnected: thousands of requests of closed
        connections would otherwise stay in memory until their turn."""
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            return
        except asyncio.CancelledError:  # the service ends, and does not serve it
            raise Gone from None
        raise Gone

    def end_body(self) -> None:
        """Call this when the request is complete."""
        self._step = RequestStep.RESPONSE  # its time still counts from the headers

    def begin_response(self, size: int) -> None:
        """Call this before `size` bytes are sent."""
        self._connections.make_room_for(self, size)

    def end_request(self) -> None:
        """Call this when its response is complete, or never will be."""
        self._received = False
        self._enter(RequestStep.HEADERS)

    @property
    def is_closing(self) -> bool:
        """Whether the service ends, so that this connection takes no further request."""
        return self._closing_since is not None

    # Called by Connections

    def abort(self) -> None:
        """Closes it at once, and frees the kernel's buffer of a client that reads nothing."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and self.unread():
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def unread(self) -> int:
        """Bytes of responses that the client has not read."""
        size = self.transport.get_write_buffer_size()
        if size != self._unread_bytes:
            self._unread_bytes, self.unread_since = size, self.loop.time()
        return size

    def cost_to_close(self) -> tuple[int, float] | None:
        """Lower ones are closed first, as the list at the top of this module says; None: never."""
        if self.unread() and self.loop.time() - self.unread_since > _STALLED_SECONDS:
            return (0, self.unread_since)
        if self._step is RequestStep.HELD:
            return (1, self._since)
        if self._step is not RequestStep.RESPONSE:
            return (3 if self.has_key else 2, self._since)
        return None

    def check_time(self) -> None:
        """Closes the connection if a step takes too long."""
        now, limits = self.loop.time(), self._limits
        if self.transport.is_closing():
            return
        if self.unread() and now - self.unread_since > limits.unread_seconds:
            self.abort()
            return
        if self._closing_since is not None and now - self._closing_since >= _CLOSING_SECONDS:
            if self._step is RequestStep.HEADERS:
                self._close_after_response()
            elif self._step is RequestStep.BODY:
                self.abort()
            return
        seconds = limits.response_seconds
        if self._step is RequestStep.HEADERS:
            seconds = limits.idle_seconds if self._requests else limits.header_seconds
        if now - self._since > seconds:
            self.abort()

    def _enter(self, step: RequestStep) -> None:
        if step is RequestStep.HEADERS or self._step is RequestStep.HEADERS:
            self._since = self.loop.time()
        self._step = step

    def _close_after_response(self) -> None:
        """Closes at once if there is no request."""
        with suppress(h11.ProtocolError):
            self._http.shutdown()


class _JsonErrors(H11Protocol):
    """uvicorn's protocol, with JSON error responses to what is not HTTP."""

    def send_400_response(self, msg: str) -> None:
        """Sends an error response before there is a request."""
        body = error_body("the request is not HTTP, or has no Host header", CODES[400])
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        with suppress(h11.LocalProtocolError):  # in the middle of another response
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
