"""Each limit of the service, driven to its end while another client goes on being answered."""

import json
import logging
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from small_service import on_a_socket

from glassrank.errors import InputError
from glassrank.serve import Limits, Options
from glassrank.serve.connections import Connections
from glassrank.serve.interleaving import Interleaving
from glassrank.serve.limits import change_limits, describe_limits
from glassrank.serve.query_log import KEPT, QueryLog
from glassrank.serve.run import LogLimit

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from attackers import KEY, ask

SOON = 8.0
"""Seconds: more than a busy machine needs, and less than a service waits by itself."""
AUTHORIZED = f"Host: localhost\r\nAuthorization: Bearer {KEY}\r\n".encode()


class Driver:
    """A client that goes to the limit of one service."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stack = ExitStack()

    def connect(self, *parts: bytes) -> socket.socket:
        connection = self.stack.enter_context(
            socket.create_connection(("127.0.0.1", self.port), SOON)
        )
        with suppress(OSError):
            for part in parts:
                connection.sendall(part)
        return connection

    def refused(self, path: str, body: Any = None, status: int = 400) -> str:
        given, content, _ = ask(self.port, path, body)
        assert given == status, content
        return str(json.loads(content)["message"])

    def answer(self, path: str, body: Any = None) -> Any:
        status, content, _ = ask(self.port, path, body)
        assert status == 200, content
        return json.loads(content)


def is_closed(connection: socket.socket, seconds: float = SOON) -> bool:
    """Whether the service closes it, without a byte of the response being read."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(seconds * 1e3))


def get(path: str, headers: bytes = AUTHORIZED) -> bytes:
    return f"GET {path} HTTP/1.1\r\n".encode() + headers + b"\r\n"


def post(path: str, length: int) -> bytes:
    lines = f"POST {path} HTTP/1.1\r\nContent-Length: {length}\r\n"
    return lines.encode() + b"Content-Type: application/json\r\n" + AUTHORIZED + b"\r\n"


# Requests


def drive_body_bytes(driver: Driver) -> None:
    assert "400,000 bytes" in driver.refused("/v1/rerank", {"query": "c" * 400_000}, 413)


def drive_small_body_bytes(driver: Driver) -> None:
    assert "5,000 bytes" in driver.refused("/search", {"query": "c" * 5_000}, 413)


def drive_body_values(driver: Driver) -> None:
    body = {"query": "cat", "documents": [""] * 300}
    assert "at most 200 values" in driver.refused("/v1/rerank", body)


def drive_small_body_values(driver: Driver) -> None:
    assert "at most 50 values" in driver.refused("/search", {"query": ["cat"] * 60})


def drive_body_chunks(driver: Driver) -> None:
    head = b"POST /search HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + AUTHORIZED + b"\r\n"
    connection = driver.connect(head)
    time.sleep(0.1)
    with suppress(OSError):
        for _ in range(20):
            connection.sendall(b"1\r\n \r\n" * 50)
            time.sleep(0.01)
    assert is_closed(connection)


def drive_unfinished_body_bytes(driver: Driver) -> None:
    head = post("/v1/rerank", 390_000)
    for _ in range(2):
        driver.connect(head, b" " * 200_000)
    time.sleep(0.3)
    connection = driver.connect(head, b" " * 200_000)
    assert connection.recv(100).startswith(b"HTTP/1.1 503")


def drive_query_string_bytes(driver: Driver) -> None:
    assert "must be short" in driver.refused("/search?query=" + "c" * 1_100)


def drive_query_characters(driver: Driver) -> None:
    assert "at most 50 characters" in driver.refused("/search", {"query": "c" * 51})


def drive_queries(driver: Driver) -> None:
    assert "at most 3 queries" in driver.refused("/search", {"query": ["cat"] * 4})


def drive_k(driver: Driver) -> None:
    assert "at most 40 results" in driver.refused("/search", {"query": "cat", "k": 41})


def drive_results(driver: Driver) -> None:
    assert "at most 60" in driver.refused("/search", {"query": ["cat", "dog"], "k": 40})


def drive_documents(driver: Driver) -> None:
    body = {"query": "cat", "documents": ["c"] * 21}
    assert "at most 20 documents" in driver.refused("/v1/rerank", body)


def drive_changed_documents(driver: Driver) -> None:
    change = {"side": "query", "word": 0, "by": "dog"}
    body = {"query": "cat", "doc_id": "d1", "change": change, "model": "tk"}
    assert 1 <= len(driver.answer("/explain", body)["doc_ids"]) <= 1 + 7


def drive_text_characters(driver: Driver) -> None:
    body = {"query": "cat", "documents": ["c" * 300_001]}
    assert "at most 300,000 characters" in driver.refused("/v1/rerank", body)


def drive_name_characters(driver: Driver) -> None:
    assert driver.refused("/search", {"query": "cat", "model": "m" * 201})


def drive_id_characters(driver: Driver) -> None:
    assert driver.refused("/doc?id=" + "d" * 900, status=400)


def drive_rank_fields(driver: Driver) -> None:
    body = {"query": "cat", "documents": [{"text": "c"}], "rank_fields": ["text"] * 33}
    assert driver.refused("/v1/rerank", body)


def drive_feedback(driver: Driver) -> None:
    assert driver.refused("/search", {"query": "cat", "method": "bm25+rm3(docs=101)"})


def drive_budget_ms(driver: Driver) -> None:
    assert "milliseconds" in driver.refused("/search", {"query": "cat", "budget_ms": 20_000})


# Responses


def drive_response_bytes(driver: Driver) -> None:
    hits = driver.answer("/search", {"query": "cat", "k": 40})["hits"]
    assert 0 < sum("snippet" in hit for hit in hits) < 40


def drive_title_characters(driver: Driver) -> None:
    hits = driver.answer("/search", {"query": "cat", "k": 10})["hits"]
    titles = [hit["title"] for hit in hits if hit.get("title")]
    assert titles and all(len(title) <= 5 for title in titles)


def drive_metadata_bytes(driver: Driver) -> None:
    hits = driver.answer("/search", {"query": "cat", "k": 10})["hits"]
    assert all("metadata" not in hit for hit in hits) and any(hit.get("cut") for hit in hits)


def drive_doc_characters(driver: Driver) -> None:
    document = driver.answer("/doc?id=..%2F%3Chtml%3E%3F%26")
    assert document["cut"] and len(document["text"]) == 20


def leave_unread(driver: Driver) -> socket.socket:
    """A connection whose response of 390,000 bytes nobody reads."""
    body = {"query": "cat", "documents": ["c" * 192_000] * 2, "return_documents": True}
    content = json.dumps(body).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", driver.port))
    driver.stack.enter_context(connection)
    connection.sendall(post("/v1/rerank", len(content)) + content)
    return connection


def drive_unread_bytes(driver: Driver) -> None:
    first = leave_unread(driver)
    time.sleep(0.5)
    for _ in range(4):
        leave_unread(driver)
    assert is_closed(first)


def drive_unread_seconds(driver: Driver) -> None:
    assert is_closed(leave_unread(driver))


# Connections


def drive_connections(driver: Driver) -> None:
    idle = [driver.connect() for _ in range(30)]
    assert sum(is_closed(each, 0.05) for each in idle) >= 20


drive_connections_per_address = drive_connections


def drive_pipelined_requests(driver: Driver) -> None:
    connection = driver.connect(get("/healthz") * 20)
    received = b""
    with suppress(ConnectionError):
        while data := connection.recv(1 << 16):
            received += data
    assert received.count(b"HTTP/1.1 200") == 6 and received.count(b"HTTP/1.1 429") == 1


def drive_keyless_requests_per_second(driver: Driver) -> None:
    began = time.monotonic()
    for _ in range(20):  # ten at once, then five a second
        connection = driver.connect(get("/healthz", b"Host: localhost\r\n"))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began > 1.5


def drive_addresses(driver: Driver) -> None:
    connections = Connections(Limits(addresses=10), has_key=True)
    for number in range(100):
        assert connections.reserve_request(f"10.0.0.{number}", 0.0) == 0
    assert len(connections._next_request) == 10


def drive_header_seconds(driver: Driver) -> None:
    assert is_closed(driver.connect(b"GET /healthz HTTP/1.1\r\n"))


def drive_idle_seconds(driver: Driver) -> None:
    connection = driver.connect(get("/healthz"))
    assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert is_closed(connection)


def drive_body_seconds(driver: Driver) -> None:
    connection = driver.connect(post("/search", 100), b"{")
    assert connection.recv(100).startswith(b"HTTP/1.1 408")


def drive_response_seconds(driver: Driver) -> None:
    assert is_closed(driver.connect(post("/search", 100), b"{"))


def drive_log_lines_per_minute(driver: Driver) -> None:
    seconds = [0.0]
    limit = LogLimit(3, clock=lambda: seconds[0])
    records = [logging.makeLogRecord({"msg": "an error"}) for _ in range(10)]
    assert sum(map(limit.filter, records)) == 3
    seconds[0] = 60.0
    assert limit.filter(records[0]) and "7 lines before it were dropped" in records[0].msg


def drive_query_log_bytes(driver: Driver) -> None:
    with TemporaryDirectory() as folder:
        log = QueryLog(Path(folder, "log.jsonl"), Limits(query_log_bytes=1_000))
        for number in range(200):
            log.write("search", f"{number:016x}", query="cat", shown=["d1"])
        sizes = [path.stat().st_size for path in Path(folder).iterdir()]
        assert len(sizes) == KEPT and max(sizes) <= 1_000


def drive_open_interleavings(driver: Driver) -> None:
    interleaving = Interleaving(("a", "b"), 1.0, 10)
    for number in range(100):
        interleaving.draft(str(number), ["x", "y"], ["y", "x"], 2)
    assert len(interleaving._open) == 10


SHARED = Limits(
    body_bytes=400_000,
    small_body_bytes=5_000,
    body_values=200,
    small_body_values=50,
    body_chunks=100,
    unfinished_body_bytes=300_000,
    query_string_bytes=1_000,
    query_characters=50,
    queries=3,
    k=40,
    results=60,
    documents=20,
    changed_documents=7,
    text_characters=300_000,
    id_characters=800,
    response_bytes=3_000,
    title_characters=5,
    metadata_bytes=5,
    doc_characters=20,
    pipelined_requests=5,
    keyless_requests_per_second=5,
)
OWN = {
    "unread_bytes": Limits(unread_bytes=500_000),
    "unread_seconds": Limits(unread_seconds=1.0),
    "connections": Limits(connections=10),
    "connections_per_address": Limits(connections_per_address=10),
    "header_seconds": Limits(header_seconds=0.5),
    "idle_seconds": Limits(idle_seconds=0.5),
    "body_seconds": Limits(body_seconds=0.5),
    "response_seconds": Limits(response_seconds=1.0),
}
"""Limits that others could not be driven under."""
DRIVERS: dict[str, Callable[[Driver], None]] = {
    name.removeprefix("drive_"): drive
    for name, drive in list(globals().items())
    if name.startswith("drive_")
}


@contextmanager
def another_client(port: int) -> Any:
    """One with the key, which asks all the while."""
    stop, statuses = threading.Event(), []

    def run() -> None:
        while not stop.wait(0.02):
            try:
                statuses.append(ask(port, "/search?query=cat&k=1&budget_ms=9000")[0])
            except OSError as error:
                statuses.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
        time.sleep(0.1)
    finally:
        stop.set()
        thread.join(30)
    assert statuses and set(statuses) == {200}, statuses


@pytest.fixture(scope="module")
def shared(options: Options) -> Any:
    with on_a_socket(replace(options, api_key=KEY, limits=SHARED)) as address:
        yield address


def test_every_limit_is_driven() -> None:
    assert set(DRIVERS) == {each.name for each in fields(Limits)}


@pytest.mark.tried("Service", "a client at each limit", "bounded, and others answered")
@pytest.mark.parametrize("name", [each.name for each in fields(Limits)])
def test_at_its_limit_others_are_answered(options: Options, shared: str, name: str) -> None:
    with ExitStack() as stack:
        address = shared
        if name in OWN:
            limited = replace(options, api_key=KEY, limits=OWN[name])
            address = stack.enter_context(on_a_socket(limited))
        driver = Driver(int(address.rpartition(":")[2]))
        stack.callback(driver.stack.close)
        with another_client(driver.port):
            DRIVERS[name](driver)


def test_the_page_and_the_command_list_every_limit() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text("utf-8")
    command = [sys.executable, "-c", "from glassrank.cli import main; main()", "serve", "--help"]
    printed = subprocess.run(command, capture_output=True, text=True).stdout
    for name, value, about in describe_limits():
        assert f"| `{name}` | {value} | {about} |" in page
        assert f"{name}={value}" in printed


def test_limits_are_changed_by_name() -> None:
    changed = change_limits(Limits(), ["connections=512", "idle_seconds=2.5"])
    assert (changed.connections, changed.idle_seconds) == (512, 2.5)
    for setting in ("conections=512", "connections=many", "connections=0", "k", "budget_ms=inf"):
        with pytest.raises(InputError, match="--limit"):
            change_limits(Limits(), [setting])
