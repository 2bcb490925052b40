"""Whatever is asked, the answer is JSON that says what is wrong, and the service goes on."""

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_service import message
from starlette.testclient import TestClient

BOUNDED = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ANSWERS = (200, 400, 404, 413, 503)
TEXTS = st.text(max_size=30) | st.sampled_from(["cat", "the cat sat", "d1", "\ud800", "\0", " "])
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 10**400, 1e308, 5e-324])
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["tk", "knrm", "none"]) | TEXTS
METHODS = st.sampled_from(
    ["bm25", "ql", "bm25+rm3", "ql(mu=9)+rm3(docs=2)", "bm25(k1=nan)", "ql(mu=inf)", "bm25(b=)"]
)
CHANGES = st.fixed_dictionaries(
    {"side": st.sampled_from(["query", "document"]) | TEXTS},
    optional={"word": st.integers(-2, 30) | TEXTS, "by": TEXTS | ANYTHING},
)
FIELDS = {
    "query": TEXTS | st.lists(TEXTS, max_size=3),
    "k": st.integers(-1, 1001),
    "budget_ms": st.floats(0.001, 100),
    "method": METHODS | TEXTS,
    "model": NAMES | st.lists(NAMES, max_size=3),
    "where": st.lists(TEXTS | st.sampled_from(["n>3", "n in 1,2", "n="]), max_size=3)
    | st.dictionaries(st.just("n") | TEXTS, ANYTHING, max_size=3),
    "snippets": st.booleans(),
    "stream": st.booleans(),
    "doc_id": TEXTS | st.lists(st.sampled_from(["d1", "d2", "d99"]) | TEXTS, max_size=3),
    "text": TEXTS | st.lists(TEXTS, max_size=4),
    "first_score": st.floats(-1e7, 1e7) | st.lists(st.floats(), max_size=3),
    "change": CHANGES,
    "documents": st.lists(TEXTS | st.dictionaries(TEXTS, ANYTHING, max_size=3), max_size=4),
    "top_n": st.integers(),
    "rank_fields": st.lists(TEXTS, max_size=3),
    "return_documents": st.booleans(),
}
FORMS = {
    "/search": ("query", "k", "budget_ms", "method", "model", "where", "snippets", "stream"),
    "/explain": ("query", "doc_id", "text", "model", "method", "first_score", "change"),
    "/v1/rerank": ("query", "documents", "model", "top_n", "rank_fields", "return_documents"),
    "/v2/rerank": ("query", "documents", "model", "top_n", "rank_fields", "budget_ms"),
}


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def is_sound(answer: Any) -> None:
    assert answer.status_code in ANSWERS, (answer.status_code, answer.text)
    kind = answer.headers["content-type"]
    if kind == "application/x-ndjson":
        for line in answer.text.splitlines():
            assert json.loads(line, parse_constant=no_constant)["stage"] != "error"
        return
    assert kind == "application/json"
    json.loads(answer.content, parse_constant=no_constant)
    if answer.status_code != 200:
        assert message(answer)


@pytest.mark.tried("Service", "random requests", "an answer, or one sentence; never 500", tries=150)
@pytest.mark.parametrize("path", FORMS)
def test_forms_that_are_almost_right(client: TestClient, path: str) -> None:
    required, *others = FORMS[path]
    form = st.fixed_dictionaries(
        {required: FIELDS[required]}, optional={name: FIELDS[name] | ANYTHING for name in others}
    )

    @BOUNDED
    @given(form, st.dictionaries(TEXTS, ANYTHING, max_size=1))
    def ask(asked: dict[str, Any], more: dict[str, Any]) -> None:
        body = json.dumps({**asked, **more})
        is_sound(client.post(path, content=body, headers={"Content-Type": "application/json"}))

    ask()


@pytest.mark.tried("Service", "random requests", "an answer, or one sentence; never 500", tries=150)
@pytest.mark.parametrize("path", FORMS)
def test_bodies_that_are_none(client: TestClient, path: str) -> None:
    @BOUNDED
    @given(st.binary(max_size=200) | ANYTHING.map(lambda value: json.dumps(value).encode()))
    def ask(body: bytes) -> None:
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        is_sound(answer)

    ask()


@pytest.mark.tried("Service", "random requests", "an answer, or one sentence; never 500", tries=300)
@BOUNDED
@given(st.dictionaries(st.sampled_from(FORMS["/search"]), TEXTS | NUMBERS.map(str), max_size=5))
def test_addresses_with_anything_in_them(client: TestClient, asked: dict[str, str]) -> None:
    sound = {name: value.encode("utf-8", "replace").decode() for name, value in asked.items()}
    is_sound(client.get("/search", params=sound))
    is_sound(client.get("/doc", params={"id": sound.get("query", "")}))


@BOUNDED
@given(
    query=st.text(min_size=1, max_size=40).filter(str.strip),
    k=st.integers(1, 1000),
    budget_ms=st.floats(5000, 10_000),
    method=st.from_regex(r"\A(bm25|ql)(\+rm3)?\Z"),
    model=st.sampled_from(["tk", "knrm", "none"]),
)
def test_what_is_right_is_answered(client: TestClient, **asked: Any) -> None:
    answer = client.post("/search", json=asked)
    assert answer.status_code == 200, answer.text
    hits = answer.json()["hits"]
    assert len(hits) <= asked["k"] and all(math.isfinite(hit["score"]) for hit in hits)


def test_what_the_schema_says_is_what_is_checked(client: TestClient) -> None:
    """Programs that read the schema know which models there are, and all that may come back."""
    schema = client.get("/openapi.json").json()
    model = schema["components"]["schemas"]["SearchRequest"]["properties"]["model"]["anyOf"][0]
    assert model["enum"] == ["tk", "knrm", "none"]
    for operation in schema["paths"]["/search"].values():
        kinds = set(operation["responses"]["200"]["content"])
        assert kinds == {"application/json", "application/x-ndjson"}
        assert {"4XX", "503"} <= set(operation["responses"])
    assert set(schema["paths"]["/metrics"]["get"]["responses"]["200"]["content"]) == {"text/plain"}


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/search", "GET, POST"), ("/explain", "POST"), ("/info", "GET"), ("/", "GET, HEAD")],
)
@pytest.mark.parametrize("method", ["DELETE", "PUT", "OPTIONS", "TRACE", "PATCH", "QUERY"])
def test_other_methods_are_told_which_there_are(
    client: TestClient, path: str, allowed: str, method: str
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 405 and answer.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["/search", "/explain", "/v1/rerank", "/info", "/healthz"])
def test_head_is_another_method_and_no_missing_address(client: TestClient, path: str) -> None:
    answer = client.head(path)
    assert answer.status_code == 405 and "HEAD" not in answer.headers["allow"]
    assert client.head("/").status_code == 200
