"""Runs the service: one process, or several workers that share a listening socket and, by memory
mapping, the index and the stores.

When it ends, a service refuses new connections and responds to every request that has arrived, even
if the kernel has accepted its connection and no worker has seen it yet.
"""

import asyncio
import ctypes
import gc
import logging
import multiprocessing
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from glassrank.backends.threads import num_processors, set_threads
from glassrank.cluster.cluster import connect
from glassrank.errors import GlassrankError
from glassrank.serve.app import make_app
from glassrank.serve.connections import Connection, Connections
from glassrank.serve.loaded import IndexReloader
from glassrank.serve.metrics import SHARED_FOLDER, remove_shared, shared_folder
from glassrank.serve.options import Options

_BACKLOG = 256
_DRAIN_SECONDS = 10
"""For running requests when the service ends: no budget is longer."""
_EXIT_SECONDS = 1.0
_END_SECONDS = 2 * _DRAIN_SECONDS
"""After which a worker that does not end is killed."""
_ACCEPT_SECONDS = 1.0
"""For connections that are not accepted yet when the service ends."""
_SILENT_SECONDS = 300
"""After which a silent worker is replaced; loading models takes a while."""
_LOOK_SECONDS = 0.2
_STARTUP_FAILURE = 3
_SWITCH_SECONDS = 0.0005
"""How long a computing thread may block others; Python's 5 ms are a tenth of a usual budget."""


def serve(options: Options, started: Callable[[str], None] = lambda address: None) -> None:
    """Runs until SIGTERM or Ctrl-C, and finishes requests; `started` gets the URL."""
    with _bind(options) as listener, connect(options.ray):
        prepare_process(options)
        reloader = IndexReloader(options)  # an error in index or model shows here, not in a worker
        if options.workers == 1:
            run = partial(_run_server, make_app(options, reloader, _exit_soon), options, listener)
        else:
            run = partial(_run_workers, options, listener)
        _freeze_gc()
        listener.listen(_BACKLOG)
        started(_make_url(options.host, listener))
        del reloader
        run()


def prepare_process(options: Options) -> None:
    """Divides the cores among workers, and leaves one core of each to the event loop: parallel
    threads all wait for one that has to share its core, and a query of 2 ms then takes 200."""
    cores = num_processors() // options.workers - 1
    threads = max(1, cores // options.threads)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # for workers, which begin anew
    set_threads(threads)
    sys.setswitchinterval(_SWITCH_SECONDS)
    limit = LogLimit(options.limits.log_lines_per_minute)
    for name in ("glassrank.serve", "uvicorn.error"):
        logging.getLogger(name).addFilter(limit)


class LogLimit(logging.Filter):
    """Passes `per_minute` records in each minute; the next record says how many were dropped.

    >>> limit = LogLimit(1, clock=lambda: 0.0)
    >>> record = logging.makeLogRecord({"msg": "an error"})
    >>> limit.filter(record), limit.filter(record)
    (True, False)
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._clock = clock
        self._minute, self._passed, self._dropped = 0, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        minute = int(self._clock() // 60)
        if minute != self._minute:
            if self._dropped:
                record.msg = f"{record.msg} ({self._dropped} lines before it were dropped)"
            self._minute, self._passed, self._dropped = minute, 0, 0
        if self._passed >= self._per_minute:
            self._dropped += 1
            return False
        self._passed += 1
        return True


class Server(uvicorn.Server):
    """uvicorn's server, with limited connections and a shutdown that loses no request."""

    def __init__(self, app: ASGIApp, options: Options, **settings: Any) -> None:
        self.connections = Connections(options.limits, has_key=options.api_key is not None)
        config = uvicorn.Config(
            app,
            http=partial(Connection, self.connections),  # type: ignore[arg-type]
            log_level="error",  # strangers can cause as many warnings as they like
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=int(options.limits.idle_seconds),
            timeout_graceful_shutdown=_DRAIN_SECONDS,
            **settings,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts every open connection first, then stops listening."""
        self.connections.closing = True
        with selectors.DefaultSelector() as waiting:
            for listener in sockets or [each for server in self.servers for each in server.sockets]:
                drop_new_connections(listener)
                waiting.register(listener, selectors.EVENT_READ)
            give_up = time.monotonic() + _ACCEPT_SECONDS
            while waiting.select(0) and time.monotonic() < give_up:
                await asyncio.sleep(0.001)
        await super().shutdown(sockets)


def drop_new_connections(listener: Any) -> None:
    """Makes the kernel ignore new connections, which are refused once the socket is closed.

    Closing it at once would reset connections that wait to be accepted. A filter that drops every
    packet keeps new ones out, for all processes that share the socket. Only Linux has it: elsewhere
    a connection of the last moment may be reset.
    """
    if sys.platform != "linux":
        return
    attach_filter = 26  # SO_ATTACH_FILTER, which Python does not name
    return_zero = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(return_zero))
    with suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, attach_filter, program)


def _run_server(app: ASGIApp, options: Options, listener: socket.socket) -> None:
    server = Server(app, options)

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn has its own handlers while it runs, and afterwards raises the signal again for the
    # handler before it: this one, so that the process ends with status 0.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run(sockets=[listener])


class _Worker:
    """A worker process; `beat` is the time of its last heartbeat."""

    def __init__(self, options: Options, listener: socket.socket) -> None:
        context = multiprocessing.get_context("spawn")
        self._beat = context.Value("d", time.monotonic(), lock=False)
        self.process: SpawnProcess = context.Process(
            target=_work, args=(options, listener, os.getpid(), self._beat)
        )
        self.process.start()

    def is_alive(self) -> bool:
        """Whether it runs and has sent a heartbeat lately."""
        silent = time.monotonic() - self._beat.value > _SILENT_SECONDS
        return self.process.is_alive() and not silent

    def end(self, give_up: float) -> None:
        """Waits for its end; kills it at `give_up`."""
        self.process.join(max(0.0, give_up - time.monotonic()))
        self.process.kill()
        self.process.join()


def _run_workers(options: Options, listener: socket.socket) -> None:
    """Starts workers, replaces those that die, and stops them at SIGTERM or Ctrl-C."""
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    failed = False
    with shared_folder():
        workers = [_Worker(options, listener) for _ in range(options.workers)]
        while not stopping and not failed:
            wait([worker.process.sentinel for worker in workers], _LOOK_SECONDS)
            for place, worker in enumerate(workers):
                if stopping or worker.is_alive():
                    continue
                worker.end(time.monotonic())
                if worker.process.exitcode == _STARTUP_FAILURE:
                    failed = True
                    break
                workers[place] = _Worker(options, listener)
                time.sleep(_LOOK_SECONDS)  # do not restart a worker in a tight loop
        drop_new_connections(listener)  # for all workers at once
        for worker in workers:
            worker.process.terminate()
        listener.close()
        give_up = time.monotonic() + _END_SECONDS
        for worker in workers:
            worker.end(give_up)
    if failed:
        raise GlassrankError("a worker cannot start; the lines above say why")


def _work(options: Options, listener: socket.socket, parent: int, beat: Any) -> None:
    """Runs a worker, which ends with the process that started it."""

    def watch_parent() -> None:
        while os.getppid() == parent:
            beat.value = time.monotonic()
            time.sleep(1)
        remove_shared(Path(os.environ[SHARED_FOLDER]))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch_parent, name="parent", daemon=True).start()
    prepare_process(options)
    try:
        app = make_app(options, IndexReloader(options, verify=False, wait=True), _exit_soon)
    except Exception:
        logging.getLogger("glassrank.serve").exception("a worker cannot start")
        sys.exit(_STARTUP_FAILURE)
    _freeze_gc()
    _run_server(app, options, listener)


def _exit_soon() -> None:
    """Ends the process although a thread does not end, which Python would wait for."""
    leaving = threading.Timer(_EXIT_SECONDS, os._exit, (0,))
    leaving.daemon = True
    leaving.start()


def _freeze_gc() -> None:
    """Exempts loaded objects from garbage collection, which would pause for many milliseconds."""
    gc.collect()
    gc.freeze()


def _bind(options: Options) -> socket.socket:
    """A socket that does not listen yet, so that clients are refused until the service is ready."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With the protocol named, connections send small packets at once; else they wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except (OSError, OverflowError) as error:
        listener.close()
        why = error.strerror if isinstance(error, OSError) else error
        raise GlassrankError(
            f"cannot listen on {options.host} port {options.port}: {why}; "
            "choose another with --host and --port"
        ) from None
    return listener


def _make_url(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"
