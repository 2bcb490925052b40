"""Clients that are slow, silent or many do not keep others from being answered."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace

import httpx
import pytest
from small_service import on_a_socket, raw

from glassrank.serve import Limits, Options

HEAD = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

SOON = 8.0
"""Seconds: more than a busy machine needs, and less than the service waits unless it is told to."""
assert Limits().header_seconds > SOON


@pytest.fixture
def impatient(options: Options) -> Iterator[str]:
    limits = Limits(header_seconds=0.3, idle_seconds=0.3, response_seconds=1.5, body_seconds=0.5)
    with on_a_socket(replace(options, queue=1, limits=limits)) as address:
        yield address


def connect(address: str, data: bytes = b"") -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), 20)
    connection.sendall(data)
    return connection


def is_closed(connection: socket.socket, within: float) -> bool:
    connection.settimeout(within)
    try:
        while connection.recv(1 << 16):
            pass
        return True
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def search(address: str) -> httpx.Response:
    return httpx.post(f"{address}/search", json={"query": "cat"}, timeout=60)


@pytest.mark.tried("Service", "clients that send slowly, or nothing", "closed, and others answered")
@pytest.mark.parametrize("data", [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: "])
def test_headers_that_do_not_come_are_not_waited_for(impatient: str, data: bytes) -> None:
    with connect(impatient, data) as connection:
        assert is_closed(connection, within=SOON)


@pytest.mark.tried("Service", "clients that send slowly, or nothing", "closed, and others answered")
def test_single_bytes_do_not_buy_time(impatient: str) -> None:
    until = time.monotonic() + SOON
    connection = connect(impatient, b"GET /healthz HTTP/1.1\r\nX: ")
    with connection, pytest.raises(ConnectionError):
        while time.monotonic() < until:
            connection.sendall(b"a")
            time.sleep(0.05)


@pytest.mark.tried("Service", "clients that send slowly, or nothing", "closed, and others answered")
def test_a_second_request_that_does_not_come_is_not_waited_for(impatient: str) -> None:
    with connect(impatient, GET) as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /hea")
        assert is_closed(connection, within=SOON)


@pytest.mark.tried("Service", "clients that send slowly, or nothing", "closed, and others answered")
def test_a_body_that_does_not_come_is_refused(impatient: str) -> None:
    answer = raw(impatient, HEAD + b"Content-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408") and b"connection: close" in answer.lower()
    assert b"did not arrive within" in answer


@pytest.mark.tried(
    "Service", "clients that send slowly, or nothing", "closed, and others answered", tries=20
)
def test_bodies_that_do_not_come_take_no_places(options: Options) -> None:
    """One may wait and one be answered, but those who have sent nothing do neither."""
    with on_a_socket(replace(options, queue=1)) as address, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connect(address, HEAD + b"Content-Length: 100\r\n\r\n{"))
        assert [search(address).status_code for _ in range(5)] == [200] * 5


@pytest.mark.tried(
    "Service", "clients that send slowly, or nothing", "closed, and others answered", tries=30
)
def test_the_longest_silent_connection_makes_room(options: Options) -> None:
    half = HEAD + b"Content-Length: 100\r\n\r\n{"
    limited = replace(options, limits=Limits(connections=10))
    with on_a_socket(limited) as address, ExitStack() as stack:
        idle = []
        for number in range(30):
            idle.append(stack.enter_context(connect(address, half if number % 2 else b"GET /")))
            time.sleep(0.02)  # one after the other
        for _ in range(5):
            assert search(address).status_code == 200
        assert all(is_closed(connection, within=SOON) for connection in idle[:15])
        assert not is_closed(idle[-1], within=0.1)


@pytest.mark.tried("Service", "clients that send slowly, or nothing", "closed, and others answered")
def test_slow_reader_is_disconnected(impatient: str) -> None:
    asked = 2000
    large = GET.replace(b"/healthz", b"/openapi.json")
    with connect(impatient, large.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) as other:
        size = received(other)
    assert size > 10_000
    with connect(impatient) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.settimeout(0.2)
        with suppress(OSError):  # the service stops reading, and then closes
            for _ in range(asked):
                connection.sendall(large)
        until = time.monotonic() + 10  # how long it writes before it waits depends on the machine
        with suppress(ConnectionError):  # not every system says so to one who only sends
            while time.monotonic() < until:
                with suppress(TimeoutError):
                    connection.sendall(large)
                time.sleep(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        assert received(connection) < asked * size / 2
    assert search(impatient).status_code == 200


def received(connection: socket.socket) -> int:
    """Bytes until the other side has closed, which is soon."""
    connection.settimeout(SOON)
    total, until = 0, time.monotonic() + SOON
    with suppress(ConnectionError):
        while read := connection.recv(1 << 16):
            total += len(read)
            assert time.monotonic() < until, f"{total} bytes, and not closed"
    return total


@pytest.mark.tried("Service", "a request hidden in another", "one refusal")
@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length : 5\r\n",
        b"Content-Length: 99999999999999999999999999\r\n",
    ],
)
def test_a_body_of_two_lengths_is_one_request_that_is_refused(address: str, headers: bytes) -> None:
    hidden = b"0\r\n\r\nGET /info HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = raw(address, HEAD + headers + b"\r\n" + hidden, timeout=2)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.split(b" ", 2)[1] in (b"400", b"413", b"501")


@pytest.mark.tried("Service", "a request hidden in another", "one refusal")
def test_an_old_client_cannot_send_in_pieces(address: str) -> None:
    head = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\n\r\n"
    answer = raw(address, head + b"0\r\n\r\n" + GET, timeout=2)
    assert answer.count(b"HTTP/1.1 ") == 1 and b" 400 " in answer


@pytest.mark.tried("Service", "bodies in pieces that are none", "closed, nothing in the log")
@pytest.mark.parametrize("body", [b"zz\r\n", b"5\r\nabcdefgh\r\n", b"-1\r\n", b"f" * 30 + b"\r\n"])
def test_pieces_that_are_none_are_refused_in_silence(
    address: str, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = raw(address, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body, timeout=2)
    assert answer.split(b" ", 2)[1:2] in ([b"400"], [])
    assert search(address).status_code == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_body_is_not_sent_byte_by_byte(address: str) -> None:
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    began = time.process_time()  # the service runs in this process
    with suppress(OSError):
        assert raw(address, head, *[b"1\r\n \r\n" * 10_000] * 50) == b""
    assert time.process_time() - began < 1.5
    body = b'9\r\n{"query":\r\n6\r\n"cat"}\r\n0\r\n\r\n'
    assert raw(address, head + body, timeout=2).startswith(b"HTTP/1.1 200")


def test_large_bodies_share_what_they_may_hold(options: Options) -> None:
    limited = replace(options, limits=Limits(unfinished_body_bytes=300_000))
    head = HEAD.replace(b"/search", b"/v1/rerank") + b"Content-Length: 400000\r\n\r\n"
    with on_a_socket(limited) as address, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connect(address, head + b" " * 200_000))
        time.sleep(0.3)
        assert raw(address, head + b" " * 200_000).startswith(b"HTTP/1.1 503")
        assert search(address).status_code == 200  # small ones are read


def test_many_at_once_are_all_answered(address: str) -> None:
    last = GET[:-2] + b"Connection: close\r\n\r\n"
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: raw(address, last), range(200)))
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)


def test_requests_of_closed_connections_take_no_turns(options: Options) -> None:
    """Without the key an address has five turns a second: a hundred closed connections would
    delay the next one by twenty seconds, and stay in memory as long."""
    limited = replace(
        options, api_key="a key that is long enough", limits=Limits(keyless_requests_per_second=5)
    )
    with on_a_socket(limited) as address:
        for _ in range(4):
            with ExitStack() as stack:
                for _ in range(25):
                    stack.enter_context(connect(address, GET))
        began = time.monotonic()
        assert httpx.get(f"{address}/healthz", timeout=60).status_code == 200
        assert time.monotonic() - began < SOON
