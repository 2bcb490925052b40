"""What a body holds is known before it is read."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_service import message
from starlette.testclient import TestClient

from glassrank.serve.error_responses import HttpError
from glassrank.serve.middleware import MAX_DEPTH, check_json_size

TEXTS = st.text() | st.sampled_from(['"', "\\", '\\"', "[[[", '",[{', "NaN", "\\\\", "\ud800"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def count(value: Any) -> int:
    """Values and names; an empty list counts as one that has something in it."""
    if isinstance(value, list):
        return 1 + max(1, sum(map(count, value)))
    if isinstance(value, dict):
        return 1 + max(1, sum(1 + count(one) for one in value.values()))
    return 1


def depth(value: Any) -> int:
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth, inner), default=0)
    return 0


@settings(deadline=None)
@given(VALUES, st.booleans())
def test_values_are_counted_as_they_would_be_read(value: Any, escaped: bool) -> None:
    body = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "replace")
    expected = count(json.loads(body))
    check_json_size(body, expected + 100)  # room for spaces
    if depth(value) <= MAX_DEPTH and expected > 1:
        with pytest.raises(HttpError, match=f"not {expected:,}"):
            check_json_size(body, expected - 1)


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1])
def test_depth_is_known(levels: int) -> None:
    body = b'{"a":[' * (levels // 2) + b"[" * (levels % 2) + b"]" * (levels % 2)
    body += b"]}" * (levels // 2)
    assert depth(json.loads(body)) == levels
    if levels <= MAX_DEPTH:
        check_json_size(body, 1000)
    else:
        with pytest.raises(HttpError, match="nested 32 deep"):
            check_json_size(body, 1000)


@pytest.mark.parametrize(
    "body",
    [b"\xff\xfe[\0]\0", "[1]".encode("utf-32"), b'["\0"]', "∀".encode("utf-16-le") + b"[,\0" * 100],
)
def test_only_utf8_is_read(body: bytes) -> None:
    with pytest.raises(HttpError, match="not JSON"):
        check_json_size(body, 1000)


CHANGE = {"side": "query", "word": "w" * 999}
LARGE = 8 << 20
ATTACKS = {
    "numbers": b"1,",
    "lists": b"[],",
    "objects": b'{"":0},',
    "texts": b'"",',
    "open": b"[",
    "digits": b"1",
    "long numbers": b"1" * 4000 + b",",
    "spaces": b" ",
    "quotes": b'\\"',
    "letters": b"a",
}


@pytest.mark.tried("Service", "bodies of 8 MB", "refused, in less than 100 MB")
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("path", ["/v1/rerank", "/search", "/explain"])
def test_no_body_becomes_large(client: TestClient, path: str, name: str) -> None:
    """Eight megabytes of anything are refused, and never take more than a few times as much."""
    unit = ATTACKS[name]
    body = b'{"query":"x","documents":[' + unit * ((LARGE - 100) // len(unit))
    tracemalloc.start()
    try:
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code in (400, 413), message(answer)
    assert len(answer.content) < 5000
    assert most < 100 << 20


@pytest.mark.tried(
    "Service", "requests larger than allowed, or no requests", "refused in one sentence"
)
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/rerank", {"query": "cat", "documents": [1] * 90_000}),
        ("/v1/rerank", {"query": "cat", "documents": ["cat"] * 9_999 + [1]}),
        ("/v1/rerank", {"query": "cat", "documents": [[]] * 9_999}),
        ("/v1/rerank", {"query": "cat", "documents": ["cat"], "rank_fields": ["a"] * 90_000}),
        (
            "/v1/rerank",
            {"query": "cat", "documents": ["cat"], "rank_fields": ["a" * 9999]},
        ),
        ("/v1/rerank", {"query": "cat", "documents": ["cat"], "model": "m" * 100_000}),
        ("/search", {"query": [1] * 900}),
        ("/search", {"query": "cat", **{f"k{number}": 1 for number in range(400)}}),
        ("/search", {"query": "cat", "x" * 100_000: 1}),
        ("/search", {"query": "cat", "method": "+" * 60_000}),
        ("/search", {"query": "cat", "method": "bm25" + " " * 60_000}),
        ("/search", {"query": "cat", "model": "m" * 100_000}),
        ("/search", {"query": ["cat"] * 64, "k": 1000}),
        ("/search", {"query": "cat", "method": "bm25+rm3(docs=1000)"}),
        ("/explain", {"query": "cat", "doc_id": ["d1"] * 900}),
        ("/explain", {"query": "cat", "text": "cat", "method": "ql+rm3(terms=101)"}),
        ("/explain", {"query": "cat", "text": "cat", "first_score": [1.0] * 900}),
        ("/explain", {"query": "cat", "text": "cat", "first_score": 1e300}),
        (
            "/explain",
            {"query": "cat", "text": "cat", "change": CHANGE},
        ),
    ],
)
def test_what_is_too_long_is_one_short_sentence(
    client: TestClient, path: str, asked: dict[str, Any]
) -> None:
    answer = client.post(path, json=asked)
    assert answer.status_code == 400
    assert len(message(answer)) < 1200


def test_a_field_that_is_named_often_is_read_once(client: TestClient) -> None:
    asked = {"query": "cat", "documents": [{"a": "cat " * 49_000}], "rank_fields": ["a"] * 32}
    answer = client.post("/v1/rerank", json=asked)
    assert answer.status_code == 200
    assert answer.json()["usage"]["total_tokens"] == 49_001


@pytest.mark.tried("Service", "numbers that are none", "400", tries=7)
@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" * 400 + b".0", b"NaN", b"Infinity"])
def test_numbers_that_are_none_are_refused(client: TestClient, number: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for path, body in (
        ("/search", b'{"query": "cat", "budget_ms": %b}'),
        ("/search", b'{"query": "cat", "k": %b}'),
        ("/explain", b'{"query": "cat", "text": "cat", "first_score": %b}'),
        ("/explain", b'{"query": "cat", "text": "cat", "first_score": [%b]}'),
        ("/v1/rerank", b'{"query": "cat", "documents": ["cat"], "budget_ms": %b}'),
        (
            "/v1/rerank",
            b'{"query":"c","documents":[{"text":"a","n":%b}],"return_documents":true}',
        ),
        ("/v1/rerank", b'{"query": "cat", "documents": [{"text": %b}], "return_documents": true}'),
    ):
        answer = client.post(path, content=body % number, headers=headers)
        assert answer.status_code == 400, (path, body, answer.text)


def test_addresses_are_short(client: TestClient) -> None:
    answer = client.get("/search", params={"query": "cat", "method": "+" * 20_000})
    assert answer.status_code == 400 and "must be short" in message(answer)
    answer = client.get("/search", params={"query": "cat", "method": "+" * 300})
    assert answer.status_code == 400 and "at most 200 characters" in message(answer)
