"""Client connections: how many there may be, how long each step may take, and who makes room.

uvicorn and h11 speak HTTP. Neither bounds how many connections a client holds, how many requests it
sends ahead, or how long it leaves a response unread; nor does hypercorn or granian (decision 32).
`Connection` stands between asyncio and uvicorn's protocol and does that. It relies on asyncio's
`Protocol` and `Transport` alone; what only the application knows (that a request is whole, that it
brought the key, that its response is complete) the middleware tells it through
`current_connection`.

When there are too many connections, the first to go are

1. those that leave a response unread,
2. those that are held back because they ask too fast,
3. those that have not shown the key and have not sent a whole request, the longest silent first,
4. those that have shown the key and have not sent a whole request.

If none of these is there, the newcomer goes. A connection that is held back costs nothing, while
one that is closed comes again: so clients that send too fast are made to wait, not closed.
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
"""After which a client that has taken nothing of its response does not read."""
_PIPELINE_DELAY_SECONDS = 0.05
_LONGEST_DELAY_SECONDS = 1.0
_SEND_BUFFER_BYTES = 128 << 10
"""Of the kernel, for each connection: what it takes looks as if the client had read it."""
_CLOSING_SECONDS = 0.3
"""At the end of the service, for requests that are on their way."""
_KEYLESS_BURST_SECONDS = 2.0


class Gone(Exception):  # noqa: N818
    """The client has disconnected."""


class TooManyPipelined(Exception):  # noqa: N818
    """The client has sent too many requests ahead."""


class RequestStep(enum.Enum):
    """What a connection is at."""

    HEADERS = "no request, or not all of its headers"
    BODY = "a request whose body is coming in"
    HELD = "a request that waits for its turn"
    RESPONSE = "a whole request that is being answered"


current_connection: ContextVar["Connection | None"] = ContextVar("connection", default=None)
"""That of the request at hand; None in a test without sockets."""


class Connections:
    """The open connections of one process."""

    def __init__(self, limits: Limits, *, has_key: bool) -> None:
        """`has_key`: whether the service has an API key, so that clients can show it."""
        self.limits = limits
        self.has_key = has_key
        self.closing = False
        files = _OPEN_FILES // 4 if _OPEN_FILES > 0 else limits.connections
        self._most = min(limits.connections, files)
        self._open: set[Connection] = set()
        self._next_request: OrderedDict[str, float] = OrderedDict()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: "Connection") -> None:
        """A new one; where there are too many, another goes."""
        self._open.add(connection)
        if self._sweeping is None:
            self._sweeping = connection.loop.call_later(_SWEEP_SECONDS, self._sweep)
        # One that was closed in this same moment is still there, but only just.
        open_ = [each for each in self._open if not each.transport.is_closing()]
        neighbours = [
            each for each in open_ if each.address == connection.address and not each.has_key
        ]
        if len(neighbours) > self.limits.connections_per_address:
            self._make_room(neighbours, connection)
        elif len(open_) > self._most:
            self._make_room(open_, connection)

    def remove(self, connection: "Connection") -> None:
        """One that is closed."""
        self._open.discard(connection)

    def make_room_for(self, connection: "Connection", size: int) -> None:
        """Before a response of `size` bytes is sent: who has read nothing for longest goes, until
        all unread responses are within their limit."""
        unread = {each: each.unread() for each in self._open if each is not connection}
        total = sum(unread.values()) + size
        for each in sorted((each for each in unread if unread[each]), key=Connection.read_at):
            if total <= self.limits.unread_bytes:
                return
            total -= unread[each]
            each.abort()

    def reserve_request(self, address: str, now: float) -> float:
        """Seconds until this address may make another request without the key."""
        rate = self.limits.keyless_requests_per_second
        earliest = now - _KEYLESS_BURST_SECONDS
        at = max(self._next_request.pop(address, earliest), earliest) + 1 / rate
        self._next_request[address] = at  # the last used is the last
        while len(self._next_request) > self.limits.addresses:
            self._next_request.popitem(last=False)
        return max(0.0, at - now)

    def _make_room(self, among: list["Connection"], newcomer: "Connection") -> None:
        candidates = [each for each in among if each is not newcomer]
        costs = {each: each.cost_to_close() for each in candidates}
        first = min(candidates, key=lambda each: costs[each], default=None)
        if first is None or costs[first] >= _NEVER_CLOSED:
            first = newcomer
        first.abort()

    def _sweep(self) -> None:
        self._sweeping = None
        for connection in list(self._open):
            connection.check_time()
            self._sweeping = self._sweeping or connection.loop.call_later(
                _SWEEP_SECONDS, self._sweep
            )


_NEVER_CLOSED = (4, 0.0)


class Connection(asyncio.Protocol):
    """One client's connection, around uvicorn's protocol."""

    def __init__(
        self,
        connections: Connections,
        *,
        server_state: Any,
        _loop: asyncio.AbstractEventLoop | None = None,
        **given: Any,
    ) -> None:
        """What uvicorn gives its protocol, after the `connections` that this one belongs to."""
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
        """Whether anything came in since the last response."""
        self._is_chunked = False
        self._chunk_lines = 0
        self._unread_bytes, self._unread_since = 0, 0.0
        self._closing_since: float | None = None

    # What asyncio calls

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
        # uvicorn shuts down what is in this set: us, who know more.
        self._all.discard(self._http)
        self._all.add(self)
        self._connections.add(self)
        if self._connections.closing:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client, or we, closed it."""
        self._connections.remove(self)
        self._all.discard(self)
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a request, or more than a request may have."""
        self._received = True
        if self._is_chunked and self._step is RequestStep.BODY:
            # Each chunk has two line ends; many small ones cost far more than their bytes.
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
        """The client does not read as fast as it is sent to."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        self._http.resume_writing()

    # What uvicorn calls

    def shutdown(self) -> None:
        """The service ends: what has come in is answered, and so is what is on its way."""
        self._closing_since = self.loop.time()
        if self._step in (RequestStep.HELD, RequestStep.RESPONSE):
            self._close_after_response()
        else:
            self.loop.call_later(_CLOSING_SECONDS, self.check_time)

    # What the middleware calls

    async def begin_request(self, *, has_key: bool, has_body: bool, is_chunked: bool) -> None:
        """The headers of a request are there. Returns when it may be answered: at once, unless the
        client has sent requests ahead, or too many without the key.

        Raises `Gone` or `TooManyPipelined`.
        """
        self.has_key = self.has_key or has_key
        self._is_chunked, self._chunk_lines = is_chunked, 0
        self._requests += 1
        self._pipelined = 0 if self._received else self._pipelined + 1
        self._received = False
        if self._closing_since is not None:
            self._close_after_response()
        delay = min(_LONGEST_DELAY_SECONDS, _PIPELINE_DELAY_SECONDS * self._pipelined)
        if self._connections.has_key and not has_key:
            now = self.loop.time()
            delay = max(delay, self._connections.reserve_request(self.address, now))
        if delay or self.unread():
            self._enter(RequestStep.HELD)
            if self._pipelined > self._limits.pipelined_requests:
                raise TooManyPipelined
            await asyncio.sleep(delay)
            while self.unread() and not self.transport.is_closing():
                await asyncio.sleep(_SWEEP_SECONDS)
        if self.transport.is_closing():
            raise Gone
        self._enter(RequestStep.BODY if has_body else RequestStep.RESPONSE)

    def end_body(self) -> None:
        """The request is whole."""
        self._step = RequestStep.RESPONSE  # in the time that it has had since its headers

    def begin_response(self, size: int) -> None:
        """So many bytes are about to be sent."""
        self._connections.make_room_for(self, size)

    def end_request(self) -> None:
        """Its response is complete, or never will be."""
        self._received = False
        self._enter(RequestStep.HEADERS)

    @property
    def is_closing(self) -> bool:
        """Whether the service ends, so that no further request may come here."""
        return self._closing_since is not None

    # What the others of its process ask

    def abort(self) -> None:
        """Closes it at once. What the kernel holds for a client that reads nothing is freed."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and self.unread():
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def unread(self) -> int:
        """Bytes of responses that the client has not taken."""
        size = self.transport.get_write_buffer_size()
        if size != self._unread_bytes:
            self._unread_bytes, self._unread_since = size, self.loop.time()
        return size

    def read_at(self) -> float:
        """When the client last took something of a response."""
        return self._unread_since

    def cost_to_close(self) -> tuple[int, float]:
        """Who costs least makes room first; the tuple orders as this module's list does."""
        if self.unread() and self.loop.time() - self._unread_since > _STALLED_SECONDS:
            return (0, self._unread_since)
        if self._step is RequestStep.HELD:
            return (1, self._since)
        if self._step is not RequestStep.RESPONSE:
            return (3 if self.has_key else 2, self._since)
        return _NEVER_CLOSED

    def check_time(self) -> None:
        """Closes what has had its time."""
        now, limits = self.loop.time(), self._limits
        if self.transport.is_closing():
            return
        if self.unread() and now - self._unread_since > limits.unread_seconds:
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
        """At once where there is no request."""
        with suppress(h11.ProtocolError):
            self._http.shutdown()


class _JsonErrors(H11Protocol):
    """uvicorn's protocol; what is not HTTP is refused in JSON, as everything else is."""

    def send_400_response(self, msg: str) -> None:
        """Before there is a request that the application could answer."""
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
