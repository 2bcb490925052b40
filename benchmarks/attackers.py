"""Clients that mean harm, and one that asks as people do meanwhile: for tests and soak.py."""

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

KEY = "a key that is long enough"
PIPELINED = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300


class Flood:
    """Connections that send something, read nothing, and come again when they are closed."""

    def __init__(self, port: int, count: int, payload: Callable[[], bytes]) -> None:
        self._port = port
        self._payload = payload
        self._count = count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.opened = 0

    def __enter__(self) -> "Flood":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _open(self) -> socket.socket:
        self.opened += 1
        connection = socket.create_connection(("127.0.0.1", self._port), 10)
        connection.setblocking(False)
        with suppress(OSError):  # full, or closed at once
            connection.send(self._payload())
        return connection

    def _run(self) -> None:
        poll = select.poll()
        connections: dict[int, socket.socket] = {}
        try:
            while not self._stop.is_set():
                while len(connections) < self._count and not self._stop.is_set():
                    try:
                        connection = self._open()
                    except OSError:
                        time.sleep(0.01)
                        continue
                    connections[connection.fileno()] = connection
                    poll.register(connection, select.POLLRDHUP)
                for number, _ in poll.poll(50):
                    poll.unregister(number)
                    connections.pop(number).close()
        finally:
            for connection in connections.values():
                connection.close()


def ask(port: int, path: str, body: Any = None, timeout: float = 30) -> tuple[int, bytes, float]:
    """Status, body and milliseconds of one request, with the key, over a connection of its own."""
    began = time.perf_counter()
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        connection.request("GET" if body is None else "POST", path, data, headers)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    return response.status, content, 1e3 * (time.perf_counter() - began)


def ask_often(port: int, count: int, budget_ms: float) -> list[float]:
    """Milliseconds of searches, one after another; infinite where there was no answer."""
    times = []
    for number in range(count):
        body = {"query": f"the cold cat {number}", "budget_ms": budget_ms}
        try:
            status, _, took = ask(port, "/search", body)
        except OSError:
            status, took = 0, float("inf")
        times.append(took if status == 200 else float("inf"))
        time.sleep(0.02)
    return times


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def slow_readers(port: int, count: int, request: bytes) -> Iterator[None]:
    """Clients that take a few bytes of their responses now and then."""
    stop = threading.Event()
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), 10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request)
        connections.append(connection)

    def read() -> None:
        while not stop.wait(0.2):
            for connection in connections:
                try:
                    connection.settimeout(0.001)
                    connection.recv(64)
                except OSError:
                    continue

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for connection in connections:
            connection.close()
