"""Starts the service: one process, or several workers that share a listening socket and, by memory
mapping, the index and the stores.

At its end a service refuses new connections, and answers every request that has come in: also those
whose connection the kernel has accepted and no worker has seen yet.
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
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from glassrank.backends.threads import num_processors, set_threads
from glassrank.errors import GlassrankError
from glassrank.serve.app import make_app
from glassrank.serve.connections import Connection, Connections
from glassrank.serve.loaded import IndexReloader
from glassrank.serve.log import LogLimit
from glassrank.serve.metrics import SHARED_FOLDER, remove_shared, shared_folder
from glassrank.serve.options import Options

_BACKLOG = 256
_DRAIN_SECONDS = 10
"""For requests that are being answered when the service ends: no budget is longer."""
_EXIT_SECONDS = 1.0
_END_SECONDS = 2 * _DRAIN_SECONDS
"""After which a worker that should end is killed."""
_ACCEPT_SECONDS = 1.0
"""For connections that were made and not yet accepted when the service ends."""
_SILENT_SECONDS = 300
"""After which a worker that shows no sign of life is replaced; at its start it loads a lot."""
_LOOK_SECONDS = 0.2
_STARTUP_FAILURE = 3
_SWITCH_SECONDS = 0.0005
"""How long a thread that computes may keep others from running. Python's own 5 ms are a tenth of a
usual budget."""

Started = Callable[[str], None]


def serve(options: Options, started: Started = lambda address: None) -> None:
    """Runs until SIGTERM or Ctrl-C, answers what has come in, and returns. `started` is called with
    the address as soon as clients may connect."""
    with _bind(options) as listener, _cluster(options):
        prepare_process(options)
        reloader = IndexReloader(
            options
        )  # errors in the index or a model show here, not in a worker
        if options.workers == 1:
            run = partial(_run_server, make_app(options, reloader, _exit_soon), options, listener)
        else:
            run = partial(_run_workers, options, listener)
        _freeze_gc()
        listener.listen(_BACKLOG)
        started(_address(options.host, listener))
        del reloader
        run()


def _cluster(options: Options) -> AbstractContextManager[None]:
    """Ray's, for as long as it is served; nothing of it is imported where there is none."""
    if options.ray is None:
        return nullcontext()
    from glassrank.cluster.cluster import connected

    return connected(options.ray)


def prepare_process(options: Options) -> None:
    """The machine's cores, divided among workers, and one of each worker's left to the thread that
    talks to clients: threads that compute in step with each other all wait for one that has to
    share its core, and a query of 2 ms then takes 200."""
    cores = num_processors() // options.workers - 1
    threads = max(1, cores // options.threads)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # for workers, which begin anew
    set_threads(threads)
    sys.setswitchinterval(_SWITCH_SECONDS)
    limit = LogLimit(options.limits.log_lines_per_minute)
    for name in ("glassrank.serve", "uvicorn.error"):
        logging.getLogger(name).addFilter(limit)


class Server(uvicorn.Server):
    """uvicorn's, with bounded connections and an end that loses no request."""

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
        """First accepts every connection that was made, then stops listening."""
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
    """The kernel ignores whoever connects from now on: when the socket is closed, they are refused.

    To close it at once would reset connections that wait to be accepted. A filter that drops every
    packet keeps new ones out and those; it holds for all processes that share the socket. Only
    Linux has it: elsewhere a connection made in the last moment may be reset.
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

    # The server has handlers of its own while it runs. It then raises what it got once more, for
    # whoever was there before: this, so that a service that was told to end ends well.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run(sockets=[listener])


class _Worker:
    """A process that serves; `beat` is when it last showed a sign of life."""

    def __init__(self, options: Options, listener: socket.socket) -> None:
        context = multiprocessing.get_context("spawn")
        self._beat = context.Value("d", time.monotonic(), lock=False)
        self.process: SpawnProcess = context.Process(
            target=_work, args=(options, listener, os.getpid(), self._beat)
        )
        self.process.start()

    def is_alive(self) -> bool:
        """Whether it runs, and has shown a sign of life lately."""
        silent = time.monotonic() - self._beat.value > _SILENT_SECONDS
        return self.process.is_alive() and not silent

    def end(self, give_up: float) -> None:
        """Waits until it has ended; at some moment it is killed."""
        self.process.join(max(0.0, give_up - time.monotonic()))
        self.process.kill()
        self.process.join()


def _run_workers(options: Options, listener: socket.socket) -> None:
    """Starts workers, replaces those that die, and ends them at SIGTERM or Ctrl-C."""
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
                time.sleep(_LOOK_SECONDS)  # one that dies at once is not started all the time
        drop_new_connections(listener)  # for all workers in the same moment
        for worker in workers:
            worker.process.terminate()
        listener.close()
        give_up = time.monotonic() + _END_SECONDS
        for worker in workers:
            worker.end(give_up)
    if failed:
        raise GlassrankError("a worker could not be started; the lines above say why")


def _work(options: Options, listener: socket.socket, parent: int, beat: Any) -> None:
    """A worker process: it has its own application, and ends with the process that started it."""

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
        logging.getLogger("glassrank.serve").exception("a worker could not be started")
        sys.exit(_STARTUP_FAILURE)
    _freeze_gc()
    _run_server(app, options, listener)


def _exit_soon() -> None:
    """Python would wait for its threads, and one of them is at something that does not end."""
    leaving = threading.Timer(_EXIT_SECONDS, os._exit, (0,))
    leaving.daemon = True
    leaving.start()


def _freeze_gc() -> None:
    """What is loaded stays until the end: looking through it for garbage now and then would be a
    pause of many milliseconds."""
    gc.collect()
    gc.freeze()


def _bind(options: Options) -> socket.socket:
    """Not listening yet: whoever asks whether the service is there is refused until it is."""
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
