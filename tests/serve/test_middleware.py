"""Who may ask, and what browsers are told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from small_service import in_process, message
from starlette.testclient import TestClient

from glassrank.errors import InputError
from glassrank.serve import Options
from glassrank.serve.options import named_models, read_api_key

KEY = "0123456789abcdef"
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


@pytest.fixture(scope="module")
def guarded(options: Options) -> Iterator[TestClient]:
    with in_process(replace(options, api_key=KEY, host="0.0.0.0")) as client:
        yield client


@pytest.mark.tried("Service", "a wrong key, or none", "401, and nothing is told")
@pytest.mark.parametrize(
    "header", [None, "", KEY, f"Basic {KEY}", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}"]
)
@pytest.mark.parametrize("path", ["/search?query=cat", "/doc?id=d1", "/metrics", "/info"])
def test_without_the_key_nothing_is_told(
    guarded: TestClient, header: str | None, path: str
) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = guarded.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer" in message(answer) and KEY not in answer.text


@pytest.mark.parametrize(
    "path",
    ["/search/", "/%2Fsearch", "/%73earch", "/./search", "/x/../search", "/SEARCH", "/search;a"],
)
def test_no_other_way_to_write_an_address_leads_around_the_key(
    guarded: TestClient, path: str
) -> None:
    answer = guarded.get(f"{path}?query=cat")
    assert answer.status_code in (401, 404) and "hits" not in answer.text


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_key_everything_is_answered(guarded: TestClient, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {KEY}"}
    assert guarded.get("/search?query=cat", headers=headers).is_success
    asked = {"query": "cat", "documents": ["cat"]}
    assert guarded.post("/v1/rerank", json=asked, headers=headers).is_success


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/docs", "/openapi.json"])
def test_some_addresses_need_no_key(guarded: TestClient, path: str) -> None:
    assert guarded.get(path).is_success


@pytest.mark.parametrize(
    "path", ["/", "/search?query=cat", "/search", "/nowhere", "/docs", "/healthz", "/doc?id=d1"]
)
def test_browsers_run_nothing_but_our_page(client: TestClient, path: str) -> None:
    answer = client.get(path)
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.tried("Service", "addresses that lead out of the page's folder", "400 or 404")
@pytest.mark.parametrize(
    "path",
    [
        "/../app.py",
        "/..%2fapp.py",
        "/%2e%2e/app.py",
        "/....//app.py",
        "/%2fetc/passwd",
        "//etc/passwd",
        "/page/../../app.py",
        "/..%5capp.py",
        "/index.html%00.py",
    ],
)
def test_nothing_outside_the_page_is_served(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert "make_app" not in answer.text and "root:" not in answer.text


@pytest.mark.tried("Service", "another site's name for this machine", "421", tries=5)
def test_another_sites_name_for_this_machine_is_refused(client: TestClient) -> None:
    for name in ("evil.example", "evil.example:80", "localhost.evil.example", "[::2]:80", ""):
        answer = client.get("/search?query=cat", headers={"Host": name})
        assert answer.status_code == 421 and "--allow-host" in message(answer)
    for name in ("localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"):
        assert client.get("/search?query=cat", headers={"Host": name}).is_success


def test_a_name_can_be_allowed(options: Options) -> None:
    with in_process(replace(options, allowed_hosts=("search.example",))) as client:
        assert client.get("/healthz", headers={"Host": "search.example"}).is_success


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"host": "0.0.0.0"}, "an API key is needed"),
        ({"host": "search.example"}, "an API key is needed"),
        ({"host": "::"}, "an API key is needed"),
        ({"api_key": KEY, "no_auth": True}, "expected an API key or"),
        ({"api_key": "short"}, "at least 16 characters, not 5"),
        ({"budget_ms": 0.0}, "budget_ms must be more than 0"),
        ({"budget_ms": float("nan")}, "budget_ms must be more than 0"),
        ({"texts_budget_ms": 1e9}, "at most 10000"),
    ],
)
def test_a_service_that_should_not_be_started(
    options: Options, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        replace(options, **changes)  # type: ignore[arg-type]


def test_every_other_combination_may_be_started(options: Options) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        assert replace(options, host=host).known_hosts
    public = replace(options, host="0.0.0.0", no_auth=True, allowed_hosts=("docs.lan",))
    assert public.known_hosts == {"docs.lan"}
    assert replace(options, host="0.0.0.0", api_key=KEY).known_hosts is None
    assert KEY not in repr(replace(options, host="0.0.0.0", api_key=KEY))


def test_keys_come_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    monkeypatch.setenv("GLASSRANK_API_KEY", "from the environment")
    assert read_api_key(None) == "from the environment"
    file.write_text(f"{KEY}\n")
    assert read_api_key(file) == KEY
    file.write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        read_api_key(file)
    with pytest.raises(InputError, match="is a folder, expected a file"):
        read_api_key(file.parent)


def test_models_need_names_that_differ() -> None:
    with pytest.raises(InputError, match="not unique"):
        named_models(["a/tk", "b/tk"])
    with pytest.raises(InputError, match="'none' means no model"):
        named_models(["folder/none"])
