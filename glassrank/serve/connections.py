"""Connections that cost little: each has until some moment for what it is at, and when there are
too many, the one that has kept us waiting longest makes room.

uvicorn closes connections that are idle between two requests, but waits for ever for a first
request, for its end, and for clients that do not read.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    import resource

    _FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
except ImportError:  # Windows has no such limit
    _FILES = -1


class BoundedConnection(H11Protocol):
    """A client's connection, whose every step has an end: slow ones are closed, and the oldest idle
    one makes room."""

    head_seconds = 10.0
    """For the first request's headers."""
    idle_seconds = 30.0
    """From an answer to the end of the next request's headers."""
    answer_seconds = 60.0
    """From the headers to the last byte of the answer, which the client has to read."""
    most = min(256, _FILES // 4) if _FILES > 0 else 256
    """In each process; of the files it may open, a part."""

    most_pieces = 10_000
    """Of a body that does not say how long it is: a byte in a piece of its own costs a hundred
    times as much as one in a large piece."""

    _step: tuple[object, bool] | None = None
    _end: asyncio.TimerHandle | None = None
    _since = 0.0
    _pieces = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new client; where there are too many, another goes."""
        super().connection_made(transport)
        self._watch()
        # Those that were closed in this same moment are there still, but only just.
        others = [other for other in self.connections if not other.transport.is_closing()]
        if len(others) > self.most:
            self._make_room(others)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing waits for a client that has gone."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a request, or more than a request may have."""
        if self._in_pieces():
            self._pieces += data.count(b"\r\n")
            if self._pieces > 2 * self.most_pieces:
                self.transport.abort()
                return
        try:
            super().data_received(data)
        except h11.ProtocolError:  # no request, and too late to say so
            self.transport.abort()
        self._watch()

    def on_response_complete(self) -> None:
        """The next request's time begins with the end of this answer."""
        super().on_response_complete()
        self._watch()

    def shutdown(self) -> None:
        """What has come in whole is answered; who still sends has nothing to lose."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()
            return
        with suppress(h11.ProtocolError):
            super().shutdown()

    def _watch(self) -> None:
        """A new step has new time; bytes that bring no new step bring none."""
        step = self.cycle, self._free()
        if step == self._step or self.transport.is_closing():
            return
        self._step = step
        self._pieces = 0
        self._since = self.loop.time()
        if self._end is not None:
            self._end.cancel()
        seconds = self.answer_seconds
        if self._free():
            seconds = self.head_seconds if self.cycle is None else self.idle_seconds
        self._end = self.loop.call_later(seconds, self.transport.abort)

    def _in_pieces(self) -> bool:
        """A body comes in that does not say how long it is."""
        named = self.headers or ()
        return not self._free() and any(name == b"transfer-encoding" for name, _ in named)

    def _free(self) -> bool:
        """Nothing is asked here, or not in whole headers."""
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self, others: Sequence[object]) -> None:
        """Whoever has not sent a whole request may be closed: the one that waits longest is."""
        waiting = [
            other
            for other in others
            if isinstance(other, BoundedConnection)
            and (other._free() or other.conn.their_state is h11.SEND_BODY)
            and other is not self
        ]
        min(waiting, key=lambda other: other._since, default=self).transport.abort()
