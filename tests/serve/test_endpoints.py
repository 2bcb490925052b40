"""Without the key, only what is open is answered, however an address is written."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from reliability import Recorder
from small_service import in_process, on_a_socket, raw
from starlette.testclient import TestClient
from test_middleware import KEY

from glassrank.serve import Options
from glassrank.serve.app import PAGE, PUBLIC

GUARDED = ("/search", "/explain", "/v1/rerank", "/v2/rerank", "/doc", "/info", "/metrics")
CHARACTERS = ["\n", "\r", "\0", "\t", "\x0b", "\x0c", "\x1c", "\x7f", "\x85", "\u2028", " ", "/"]
CHARACTERS += [".", "..", "//", "/.", "/..", "/../", ";", ";x", "?", "#", "%", "\\", "é", "\ufeff"]
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get")
TELLS = re.compile(rb'"hits"|"doc_id"|"results"|"models": \[\{|glassrank_requests|"limits"')
"""What answers behind the key have in them."""


@pytest.fixture(scope="module")
def guarded(options: Options) -> Iterator[str]:
    with on_a_socket(replace(options, api_key=KEY)) as address:
        yield address


def targets(path: str) -> Iterator[str]:
    """Ways to write an address that is not quite this one, or this one in another way."""
    for character in CHARACTERS:
        encoded = "".join(f"%{byte:02X}" for byte in character.encode())
        yield path + encoded
        yield encoded + path
        yield f"/{encoded}{path[1:]}"
        yield path[:2] + encoded + path[2:]
        if character.isprintable() and character.isascii() and character not in " %#":
            yield path + character
            yield f"/{character.replace('?', '')}{path}"  # with it, this is the page
    yield from (path.upper(), path.title(), path + quote(path), path + path, f"/.{path}")
    yield "".join(f"%{byte:02x}" for byte in path.encode())
    yield "/" + "".join(f"%{byte:02X}" for byte in path[1:].encode())
    yield "/" + "".join(f"%25{byte:02X}" for byte in path[1:].encode())
    yield f"/index.html/..{path}"
    yield f"/healthz/..{path}"
    yield f"/healthz%0A/..{path}"
    yield from (f"http://localhost{path}", f"http://localhost/healthz{path}", f"//localhost{path}")
    yield from (path[1:], f"*{path}", f"/%C0%AF{path[1:]}", f"/{path[1:]}%FF", f"{path}%ED%A0%80")


def ask(address: str, method: str, target: str, *headers: str) -> bytes:
    parameters = "" if "?" in target else "?query=cat&id=d1"
    body = b'{"query": "cat", "text": "cat", "documents": ["cat"]}'
    lines = [
        f"{method} {target}{parameters} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if method == 'POST' else 0}",
        *headers,
    ]
    head = "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n"
    return raw(address, head + (body if method == "POST" else b""))


@pytest.mark.parametrize("path", GUARDED)
def test_no_way_to_write_an_address_leads_around_the_key(
    guarded: str, path: str, reliability: Recorder
) -> None:
    asked = [(method, target) for target in targets(path) for method in ("GET", "POST")]
    asked += [(method, path) for method in METHODS]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda one: ask(guarded, *one), asked))
    for one, answer in zip(asked, answers, strict=True):
        status = answer.split(b" ", 2)[1:2]
        assert status in ([b"400"], [b"401"], [b"404"], []), (one, answer[:200])
        assert not TELLS.search(answer), (one, answer[:200])
    reliability("Service", "addresses written otherwise, without the key", "refused", len(asked))


@pytest.mark.parametrize("path", GUARDED)
def test_with_the_key_only_the_address_itself_is_answered(guarded: str, path: str) -> None:
    key = f"Authorization: Bearer {KEY}"
    method = "POST" if path in ("/explain", "/v1/rerank", "/v2/rerank") else "GET"
    target = {"/search": "/search?query=cat", "/doc": "/doc?id=d1"}.get(path, path)
    answer = ask(guarded, method, target, key)
    assert (answer.startswith(b"HTTP/1.1 200") and TELLS.search(answer)) or path == "/explain"
    for suffix in ("%0A", "%0D", "%00", "/", "%2F", "."):
        again = ask(guarded, method, path + suffix, key)
        assert again.split(b" ", 2)[1] in (b"400", b"404"), suffix


def test_control_characters_are_refused(guarded: str) -> None:
    for suffix in ("%0A", "%0D", "%00", "%09", "%7F", "%C2%85", "%E2%80%A8"):
        answer = ask(guarded, "GET", f"/healthz{suffix}")
        assert answer.startswith(b"HTTP/1.1 400") and b"control characters" in answer


def test_whatever_is_added_to_the_application_is_behind_the_key(options: Options) -> None:
    """All that answers without a key is this list, and the page's files."""
    free = {"/", *PUBLIC, *(f"/{path.name}" for path in PAGE.iterdir())}
    with in_process(replace(options, api_key=KEY)) as client:
        listed = set(client.get("/openapi.json").json()["paths"])
        assert listed >= set(GUARDED)
        for path in sorted(listed | free):
            answer = client.get(path)
            assert (answer.status_code == 401) == (path not in free), path


def test_only_files_of_the_page_are_open(options: Options, tmp_path: Path) -> None:
    with in_process(replace(options, api_key=KEY)) as client:
        for path in ("/page.css", "/index.html", "/app.js"):
            assert client.get(path).is_success
        for path in ("/favicon.ico", "/app.py", "/page/app.js", "/app.js/", "/%61pp.js%00"):
            assert client.get(path).status_code in (400, 401)


def test_other_kinds_of_connection_are_closed(client: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/search"):
        pass


@pytest.mark.tried("Service", "requests of other sites' pages", "403", tries=3)
@pytest.mark.parametrize(
    "path", ["/search?query=cat", "/doc?id=d1", "/info", "/metrics", "/nowhere"]
)
def test_pages_of_other_sites_may_not_ask(client: TestClient, path: str) -> None:
    for value in ("cross-site", "Cross-Site", " cross-site "):
        answer = client.get(path, headers={"Sec-Fetch-Site": value})
        assert answer.status_code == 403
    for value in ("same-origin", "none"):
        answer = client.get(path, headers={"Sec-Fetch-Site": value})
        assert answer.status_code == (404 if path == "/nowhere" else 200)


def test_links_of_other_sites_lead_to_the_page(client: TestClient) -> None:
    for path in ("/", "/app.js", "/docs"):
        assert client.get(path, headers={"Sec-Fetch-Site": "cross-site"}).is_success


def test_names_of_hosts_have_no_case(options: Options) -> None:
    with in_process(replace(options, allowed_hosts=("Search.Example",))) as client:
        for name in ("search.example", "SEARCH.EXAMPLE:80", "Search.Example"):
            assert client.get("/healthz", headers={"Host": name}).is_success
