"""Starts the service: one process, or several that share a socket and, by memory mapping, the index
and the stores.

Connections cost little: each has until some moment for what it is at, and when there are too many,
the one that has kept us waiting longest makes room. uvicorn closes connections that are idle
between two requests, but waits for ever for a first request, for its end, and for clients that do
not read.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from glassrank.errors import GlassrankError
from glassrank.nn.threads import processors, set_threads
from glassrank.serve.app import make_app
from glassrank.serve.metrics import SHARED_FOLDER, remove_shared, shared_folder
from glassrank.serve.opened import Served
from glassrank.serve.options import Options

_BACKLOG = 256
_DRAIN_SECONDS = 10
"""For what was begun when the service is told to end: no budget is longer."""
_LEAVE_SECONDS = 1.0
_IDLE_SECONDS = 25
_SILENT_SECONDS = 300
"""After which a worker that shows no sign of life is replaced; when it begins, it loads a lot."""
_SWITCH_SECONDS = 0.0005
"""How long a thread that computes may keep others from running. Python's own 5 ms are a tenth of a
usual budget."""

Started = Callable[[str], None]


def serve(options: Options, started: Started = lambda address: None) -> None:
    """Runs until SIGTERM or Ctrl-C; then finishes what was begun, and returns. `started` is told
    the address as soon as somebody may connect."""
    with _bound(options) as listener, _cluster(options):
        prepare_process(options)
        served = Served(options)  # whatever is wrong with it is said here, and not by a worker
        if options.workers == 1:
            run = _one_process(make_app(options, served, _leave), listener)
        else:
            run = _several_processes(options, listener)
        _keep_what_is_loaded()
        listener.listen(_BACKLOG)
        started(_address(options.host, listener))
        del served
        run()


def _cluster(options: Options) -> AbstractContextManager[None]:
    """Ray's, for as long as it is served; nothing of it is imported where there is none."""
    if options.ray is None:
        return nullcontext()
    from glassrank.scale.cluster import connected

    return connected(options.ray)


def prepare_process(options: Options) -> None:
    """The machine's cores, divided among workers, and one of each worker's left to the thread that
    talks to clients: threads that compute in step with each other all wait for one that has to
    share its core, and a query of 2 ms then takes 200."""
    cores = processors() // options.workers - 1
    threads = max(1, cores // options.threads)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # for workers, which begin anew
    set_threads(threads)
    sys.setswitchinterval(_SWITCH_SECONDS)


def _one_process(app: ASGIApp, listener: socket.socket) -> Callable[[], None]:
    server = uvicorn.Server(server_config(app))

    def stop(*_: object) -> None:
        server.should_exit = True

    # The server has handlers of its own while it runs. It then raises what it got once more, for
    # whoever was there before: this, so that a service that was told to end ends well.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return lambda: server.run(sockets=[listener])


def _several_processes(options: Options, listener: socket.socket) -> Callable[[], None]:
    app = partial(_worker_app, options, os.getpid())
    supervisor = _Supervisor(server_config(app, factory=True, workers=options.workers), [listener])

    def run() -> None:
        with shared_folder():
            supervisor.run()
        if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
            raise GlassrankError("a worker could not be started; the lines above say why")

    return run


class _Supervisor(Multiprocess):
    """Replaces workers that die."""

    def keep_subprocess_alive(self) -> None:
        """Replaces a worker that has died or is silent, and waits for none."""
        # A worker has its own copy of this end. Without ours, one that dies while it is asked for a
        # sign of life is noticed at once; else it would be waited for, and SIGTERM with it.
        for worker in self.processes:
            worker.child_conn.close()
        super().keep_subprocess_alive()


def _worker_app(options: Options, parent: int) -> ASGIApp:
    """In a worker process: its own application, which ends with the process that started it."""

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        remove_shared(Path(os.environ[SHARED_FOLDER]))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, name="parent", daemon=True).start()
    prepare_process(options)
    app = make_app(options, Served(options, verify=False, wait=True), _leave)
    _keep_what_is_loaded()
    return app


def _leave() -> None:
    """Python would wait for its threads, and one of them is at something that does not end."""
    leaving = threading.Timer(_LEAVE_SECONDS, os._exit, (0,))
    leaving.daemon = True
    leaving.start()


def _keep_what_is_loaded() -> None:
    """It stays until the end, so nobody needs to look whether it can go: Python's looking through
    everything now and then would be a pause of many milliseconds."""
    gc.collect()
    gc.freeze()


def server_config(app: Any, **more: Any) -> uvicorn.Config:
    """How uvicorn is run here: bounded connections, few words in the log, a quick end."""
    return uvicorn.Config(
        app,
        http=BoundedConnection,
        log_level="error",  # strangers can cause as many warnings as they like
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        timeout_worker_healthcheck=_SILENT_SECONDS,
        **more,
    )


def _bound(options: Options) -> socket.socket:
    """Nobody can connect yet: whoever asks whether the service is there is told no until it is."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With the protocol named, connections send small packets at once; else they wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise GlassrankError(
            f"cannot listen on {options.host} port {options.port}: {error}; "
            "choose another with --host and --port"
        ) from None
    return listener


def _address(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"


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
