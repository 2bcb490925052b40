"""The service in front of shards: the same answers, and changes that are seen whole."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest
from sharded_index import QUERIES, build_in_segments, some_docs
from starlette.testclient import TestClient

from glassrank.cluster import LocalShards
from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.rerank import Reranker
from glassrank.serve import IndexReloader, Options, loaded, make_app
from glassrank.types import Doc

DOCS = some_docs(120, seed=4)
AMPLE = {"budget_ms": 10_000.0, "work_ms": 10_000.0}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    index = build_in_segments(DOCS, tmp_path_factory.mktemp("served") / "my.index", 3)
    encode_index(index, Reranker.load("fast").saved)
    return Options(index.path, (("fast", "fast"),), ray="local", refresh_seconds=0.05, **AMPLE)


@pytest.fixture
def sharded(options: Options, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """In one process, where a cluster would be asked."""

    def shards(options: Options) -> LocalShards:
        return LocalShards(3, [Reranker.load(folder) for _, folder in options.models])

    monkeypatch.setattr(loaded, "_start_shards", shards)
    with TestClient(
        make_app(options, IndexReloader(options)), base_url="http://127.0.0.1"
    ) as client:
        yield client


def hits(client: TestClient, query: str, **more: object) -> list[tuple[str, float]]:
    answer = client.post("/search", json={"query": query, "k": 20, **more}).json()
    return [(hit["doc_id"], hit["score"]) for hit in answer["hits"]]


def test_answers_are_those_of_one_machine(options: Options, sharded: TestClient) -> None:
    alone = Options(options.index, options.models, **AMPLE)
    with TestClient(make_app(alone, IndexReloader(alone)), base_url="http://127.0.0.1") as client:
        for query in QUERIES[:6]:
            for more in ({}, {"model": "none", "method": "bm25+rm3"}, {"where": {"year": 2001}}):
                assert hits(sharded, query.text, **more) == hits(client, query.text, **more)
        answer = sharded.post("/search", json={"query": QUERIES[0].text}).json()
        assert answer["shards"] == {"answered": 3, "of": 3, "missing": []}
        assert answer["hits"][0]["snippet"]["text"]
        asked = {"query": QUERIES[0].text, "doc_id": answer["hits"][0]["doc_id"]}
        explained = [c.post("/explain", json=asked).json() for c in (sharded, client)]
        assert explained[0] == explained[1]
        assert explained[0]["doc_id"] == asked["doc_id"]


def test_a_change_is_served_when_all_shards_have_it(options: Options, sharded: TestClient) -> None:
    before = hits(sharded, "ban ben bin")
    index = Index(options.index)
    index.change(add=[Doc("new", "ban ben bin")], delete=[before[0][0]])
    until = time.monotonic() + 600
    while (now := hits(sharded, "ban ben bin")) == before:
        assert time.monotonic() < until
    assert before[0][0] not in dict(now)
    assert "new" in dict(now)


@pytest.mark.slow
def test_a_service_over_actors(options: Options) -> None:
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "glassrank", "serve", str(options.index), "--model", "fast"]
    with subprocess.Popen(
        [*command, "--ray", "local", "--port", "0", "--budget-ms", "5000"],
        stderr=subprocess.PIPE,
        text=True,
    ) as service:
        try:
            assert service.stderr is not None
            lines = iter(service.stderr.readline, "")
            address = next(m[0] for line in lines if (m := re.search(r"http://[\d.:]+/", line)))
            body = json.dumps({"query": QUERIES[0].text}).encode()
            asked = urllib.request.Request(
                f"{address}search", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(asked, timeout=60) as answer:
                told = json.load(answer)
            assert told["shards"]["answered"] == told["shards"]["of"] > 1
            assert told["hits"]
        finally:
            service.send_signal(signal.SIGTERM)
            assert service.wait(60) == 0
