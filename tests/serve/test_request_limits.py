"""What is too large, or no request at all, is refused with a sentence before any work is done."""

import http.client
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from small_service import in_process, message, on_a_socket
from starlette.testclient import TestClient

from glassrank.serve import Limits, Options

SMALL = Limits(
    body_bytes=2000,
    query_characters=20,
    queries=3,
    k=5,
    documents=4,
    text_characters=30,
    budget_ms=9_000.0,
)
TIME = {"budget_ms": 9_000.0, "texts_budget_ms": 9_000.0, "work_ms": 9_000.0}


@pytest.fixture(scope="module")
def limited(options: Options) -> Iterator[TestClient]:
    with in_process(replace(options, limits=SMALL, **TIME)) as client:
        yield client


@pytest.mark.tried(
    "Service", "requests larger than allowed, or no requests", "refused in one sentence"
)
@pytest.mark.parametrize(
    ("path", "asked", "sentence"),
    [
        ("/search", {"query": "c" * 21}, "query: at most 20 characters are allowed, not 21"),
        ("/search", {"query": ["c"] * 4}, "at most 3 queries are allowed, not 4"),
        ("/search", {"query": "cat", "k": 6}, "k: at most 5 results are allowed, not 6"),
        ("/search", {"query": "cat", "k": 1, "budget_ms": 9_001}, "at most 9,000.0 milli"),
        ("/explain", {"query": "cat", "text": "c" * 31}, "text.0: at most 30 characters"),
        ("/explain", {"query": "c" * 21, "text": "cat"}, "query: at most 20 characters"),
        ("/v1/rerank", {"query": "cat", "documents": ["c"] * 5}, "documents: at most 4 documents"),
        ("/v2/rerank", {"query": "cat", "documents": ["a", "c" * 31]}, "documents.1: at most 30"),
    ],
)
def test_every_limit_is_named(
    limited: TestClient, path: str, asked: dict[str, Any], sentence: str
) -> None:
    answer = limited.post(path, json=asked)
    assert answer.status_code == 400
    assert sentence in message(answer)


def test_what_is_just_within_the_limits_is_answered(limited: TestClient) -> None:
    assert limited.post("/search", json={"query": ["cat" + 17 * " "] * 3, "k": 5}).is_success
    asked = {"query": "cat", "documents": ["c" * 30] * 4}
    assert limited.post("/v1/rerank", json=asked).is_success


def test_a_body_that_says_it_is_too_large_is_not_read(limited: TestClient) -> None:
    answer = limited.post("/search", content=b"{" + b" " * 2000 + b"}")
    assert answer.status_code == 413
    assert "at most 2,000 bytes" in message(answer)


def test_a_body_that_does_not_say_is_cut_off(options: Options) -> None:
    """In pieces, without a length: it is refused while it still comes in."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 1000

    with on_a_socket(replace(options, limits=SMALL, **TIME)) as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
        with suppress(BrokenPipeError, ConnectionResetError):  # when the service hangs up
            connection.request(
                "POST",
                "/search",
                body=endless(),
                headers={"Content-Type": "application/json"},
                encode_chunked=True,
            )
        with suppress(ConnectionResetError):  # before the answer came through
            answer = connection.getresponse()
            assert answer.status == 413
            assert "at most 2,000 bytes" in json.loads(answer.read())["message"]
        connection.close()
        fresh = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
        fresh.request("GET", "/healthz")
        assert fresh.getresponse().status == 200
        fresh.close()


@pytest.mark.tried(
    "Service", "requests larger than allowed, or no requests", "refused in one sentence"
)
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"query": "cat"', "the body is not JSON at character 15"),
        (b"cat", "the body is not JSON at character 0"),
        (b"[]", "expected a JSON object"),
        (b"", "expected a JSON object"),
        (b"null", "expected a JSON object"),
        (b"[" * 1500, "at most 1,000 values"),
        (b"[" * 500, "nested 32 deep"),
        (b'{"query": "cat", "budget_ms": NaN}', "NaN and Infinity are not"),
        (b'{"query": "cat", "budget_ms": -Infinity}', "NaN and Infinity are not"),
        (b'{"query": "cat", "budget_ms": 1e999}', "budget_ms: input should be a finite number"),
        ('{"query": "cat"}'.encode("utf-16"), "not JSON in UTF-8"),
        (b'{"query": "\xff"}', "the body is not JSON"),
    ],
)
def test_what_is_no_request_is_refused(limited: TestClient, body: bytes, sentence: str) -> None:
    answer = limited.post("/search", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert sentence in message(answer)


def test_half_a_surrogate_pair_is_a_strange_word_and_no_more(client: TestClient) -> None:
    strange = "cat \ud800"
    headers = {"Content-Type": "application/json"}
    for path, asked in (
        ("/search", {"query": strange}),
        ("/search", {"query": strange, "stream": True}),
        ("/explain", {"query": strange, "text": strange}),
        ("/v1/rerank", {"query": strange, "documents": [strange], "return_documents": True}),
    ):
        answer = client.post(path, content=json.dumps(asked), headers=headers)
        assert answer.status_code == 200, answer.text
    asked = {"query": "cat", "model": strange}
    answer = client.post("/search", content=json.dumps(asked), headers=headers)
    assert answer.status_code == 400 and "there is no model" in message(answer)


def test_json_must_be_called_json(limited: TestClient) -> None:
    """Other sites' pages can send text without asking, but not JSON."""
    answer = limited.post(
        "/search", content=b'{"query": "cat"}', headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 400
    assert "Content-Type: application/json" in message(answer)


def test_other_addresses_and_methods_are_named(limited: TestClient) -> None:
    answer = limited.get("/serach")
    assert answer.status_code == 404 and "/serach" in message(answer)
    answer = limited.delete("/search")
    assert answer.status_code == 405 and "DELETE" in message(answer)
