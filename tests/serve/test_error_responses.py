"""Every error response has a code that programs can rely on."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from small_service import in_process
from starlette.testclient import TestClient

from glassrank.deadline import LateError
from glassrank.errors import GlassrankError, InputError
from glassrank.serve import Options, searching


@pytest.fixture(scope="module")
def protected(options: Options) -> Iterator[TestClient]:
    with in_process(replace(options, api_key="0123456789abcdef")) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "asked", "status", "code"),
    [
        ("POST", "/search", {"json": {"query": ""}}, 400, "bad_input"),
        ("POST", "/search", {"json": {"query": "cat", "k": "many"}}, 400, "bad_input"),
        ("POST", "/search", {"content": b"{"}, 400, "bad_input"),
        ("POST", "/search", {"json": {"query": "cat", "where": ["?"]}}, 400, "bad_filter"),
        ("POST", "/search", {"json": {"query": "cat", "model": "no"}}, 400, "bad_input"),
        ("GET", "/search?query=cat&k=0", {}, 400, "bad_input"),
        ("GET", "/search?query=cat&buget_ms=5", {}, 400, "bad_input"),
        ("GET", "/search", {"headers": {"Sec-Fetch-Site": "cross-site"}}, 403, "forbidden"),
        ("GET", "/nowhere", {}, 404, "not_found"),
        ("GET", "/doc?id=zebra", {}, 404, "not_found"),
        ("DELETE", "/search", {}, 405, "method_not_allowed"),
        ("POST", "/search", {"content": b" " * (2 << 20)}, 413, "too_large"),
        ("GET", "/info", {"headers": {"Host": "evil.example"}}, 421, "unknown_host"),
    ],
)
def test_errors_have_codes(
    client: TestClient, method: str, path: str, asked: dict[str, Any], status: int, code: str
) -> None:
    response = client.request(method, path, **asked)
    assert (response.status_code, response.json()["code"]) == (status, code)


def test_without_the_key(protected: TestClient) -> None:
    response = protected.get("/info")
    assert (response.status_code, response.json()["code"]) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InputError("x", code="duplicate_id"), 400, "duplicate_id"),
        (GlassrankError("x"), 500, "failed"),
        (LateError("x"), 503, "too_late"),
        (ValueError("x"), 500, "internal_error"),
    ],
)
def test_codes_of_errors_from_inside(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, code: str
) -> None:
    def fail(*_: object, **__: object) -> bytes:
        raise error

    monkeypatch.setattr(searching.Searcher, "respond", fail)
    monkeypatch.setattr(searching, "explain_scores", fail)
    for path, asked in (("/search", {}), ("/explain", {"doc_id": "d1"})):
        response = client.post(path, json={"query": "cat", **asked})
        assert (response.status_code, response.json()["code"]) == (status, code)
        assert ("retry-after" in response.headers) == (status == 503)
