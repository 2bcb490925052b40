"""What requests of strangers cost a real service: none more than a second of processor time or 200
megabytes, and others are answered meanwhile."""

import http.client
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_service import make_folders
from test_processes import Running, running

from glassrank.index import Index
from glassrank.types import Doc

LARGE = 8_000_000
MOST_SECONDS = 1.0
MOST_MEGABYTES = 200
DEAF_SECONDS = 1.0
WORDS = "cat dog mat sat sea cold warm bird"


def filled(unit: bytes, before: bytes = b'{"query":"x","documents":[') -> bytes:
    return before + unit * (LARGE // len(unit)) + b"1]}"


def rerank(**form: Any) -> tuple[str, bytes]:
    return "/v1/rerank", json.dumps({"query": "the cat sat", **form}).encode()


def search(**form: Any) -> tuple[str, bytes]:
    return "/search", json.dumps({"query": "cat dog", "budget_ms": 50, **form}).encode()


def explain(**form: Any) -> tuple[str, bytes]:
    return "/explain", json.dumps({"query": "the cat", **form}).encode()


def change(word: Any, by: str, side: str = "document") -> dict[str, Any]:
    return {"side": side, "word": word, "by": by}


RM3 = "bm25+rm3(terms=100,docs=100)"
ATTACKS: dict[str, tuple[str, bytes]] = {
    "numbers": ("/v1/rerank", filled(b"1,")),
    "lists": ("/v1/rerank", filled(b"[],")),
    "objects": ("/v1/rerank", filled(b'{"":0},')),
    "digits": ("/v1/rerank", filled(b"1")),
    "long numbers": ("/v1/rerank", filled(b"1" * 4000 + b",")),
    "escapes": ("/v1/rerank", filled(b"\\u0022", b'{"query":"x","documents":["')),
    "queries": ("/search", b'{"query":[' + b"1," * 500_000 + b"1]}"),
    "wrong at the end": rerank(documents=["cat"] * 9_999 + [1]),
    "one long text": rerank(documents=["cat " * 2_000_000]),
    "forty long texts": rerank(documents=["cat dog " * 24_900] * 40),
    "many texts": rerank(documents=["the cat sat " * 60] * 10_000, budget_ms=10_000),
    "many texts sent back": rerank(documents=["the cat " * 90] * 10_000, return_documents=True),
    "fields": rerank(documents=[{"a": "x" * 39_000}] * 200, rank_fields=["a"] * 32),
    "a million fields": rerank(documents=[{"a": "x"}] * 200, rank_fields=["a"] * 1_000_000),
    "long methods": search(method="+" * 60_000),
    "all snippets": search(k=1000),
    "all snippets, much time": search(k=1000, budget_ms=10_000),
    "feedback": search(method=RM3),
    "more feedback": search(method="bm25+rm3(terms=1000,docs=1000)"),
    "feedback 64 times": search(query=["cat dog"] * 64, method=RM3, budget_ms=10_000),
    "64 long queries": search(query=[(WORDS + " ") * 50] * 64, budget_ms=10_000),
    "64 strange queries": search(query=["é," * 1000] * 64),
    "a long document": explain(doc_id="long0"),
    "two long documents": explain(doc_id=["long0", "long1"]),
    "a change in a long document": explain(doc_id="long0", change=change("cat", "dog " * 400)),
    "a change of the query": explain(doc_id="d1", change=change("cat", "dog", "query")),
    "many changes": explain(text=["cat " * 6_000] * 40, change=change("cat", "d" * 2000)),
    "50,000 changes": explain(text="cat " * 49_000, change=change("cat", "d")),
    "words that are not there": explain(text="a\u00adb " * 49_000, change=change(1, "d")),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("costs")
    options = make_folders(folder)
    texts = [f"{WORDS} " * 40 for _ in range(1500)]
    long = [Doc(f"long{n}", f"{WORDS} " * 300_000) for n in range(3)]
    Index(options.index).add([*long, *(Doc(f"n{n}", text) for n, text in enumerate(texts))])
    live = replace(options, models=options.models[1:])
    with running(live, folder) as service:
        for _ in range(3):
            service.ask("/search", query="cat dog", budget_ms=9000)
            service.ask("/v1/rerank", query="cat", documents=["cat"])
        yield service


def seconds(service: Running) -> float:
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes(service: Running, which: str) -> float:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    found = re.search(rf"{which}:\s+(\d+)", status)
    assert found
    return int(found[1]) / 1024


def ask(service: Running, path: str, body: bytes | None = None) -> int:
    connection = http.client.HTTPConnection(service.address.removeprefix("http://"), timeout=60)
    method = "GET" if body is None else "POST"
    connection.request(method, path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.tried(
    "Service",
    "requests made to be costly",
    "no more than 1 s and 200 MB, others answered meanwhile",
)
@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.quiet
def test_no_request_costs_much(service: Running, name: str) -> None:
    done, waits = threading.Event(), [0.0]

    def others() -> None:
        while not done.is_set():
            began = time.monotonic()
            assert ask(service, "/healthz") == 200
            waits.append(time.monotonic() - began)
            time.sleep(0.05)

    Path(f"/proc/{service.process.pid}/clear_refs").write_text("5")  # the peak begins anew
    before, used = megabytes(service, "VmRSS"), seconds(service)
    beside = threading.Thread(target=others)
    beside.start()
    try:
        status = ask(service, *ATTACKS[name])
    finally:
        done.set()
        beside.join()
    used = seconds(service) - used
    assert status in (200, 400, 413, 503)
    assert used <= MOST_SECONDS + 0.01 * len(waits), f"{used:.2f} s"  # some of it is others'
    assert megabytes(service, "VmHWM") - before <= MOST_MEGABYTES
    assert max(waits) <= DEAF_SECONDS
