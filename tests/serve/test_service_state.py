"""What the service says about itself: health, metrics, its models, its own reference."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from small_service import COUNT, in_process
from starlette.testclient import TestClient

from glassrank.errors import InputError
from glassrank.serve import Options, make_app


def samples(client: TestClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }


def test_metrics_count_what_happened(options: Options) -> None:
    with in_process(options) as client:
        for _ in range(3):
            client.post("/search", json={"query": "cat"})
        client.post("/search", json={"query": "cat", "k": 0})
        client.post("/search", json={"query": ["cat", "dog"], "model": "knrm"})
        client.get("/no/such/address")
        client.get("/metrics")
        found = samples(client)

    def value(name: str, **labels: str) -> float:
        return found[(f"glassrank_{name}", frozenset(labels.items()))]

    assert value("requests_total", route="/search", status="200") == 4
    assert value("requests_total", route="/search", status="400") == 1
    assert value("requests_total", route="other", status="404") == 1
    assert value("request_seconds_count", route="/search") == 5
    assert value("request_seconds_bucket", route="/search", le="+Inf") == 5
    assert value("reranked_depth_count", model="tk") == 3
    assert value("reranked_depth_sum", model="tk") == 3 * COUNT
    assert value("reranked_depth_count", model="knrm") == 2
    assert value("queue_length", queue="search") == 0
    assert value("index_documents") == COUNT
    assert value("index_generation") == 1
    assert value("index_behind") == 0


def test_health_and_readiness(client: TestClient, options: Options) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["models"] == ["tk", "knrm"]


def test_a_service_that_closes_is_not_ready(options: Options) -> None:
    app = make_app(options)
    with TestClient(app, "http://localhost"):
        pass
    answer = TestClient(app, "http://localhost").get("/readyz")
    assert answer.status_code == 503 and "retry-after" in answer.headers


def test_models_and_limits_are_told(client: TestClient) -> None:
    found = client.get("/info").json()
    assert [model["name"] for model in found["models"]] == ["tk", "knrm"]
    tk = found["models"][0]
    assert (tk["kind"], tk["doc_words"], tk["mixes_first_stage"]) == ("tk", 12, True)
    assert found["index"] == {"documents": COUNT, "generation": 1, "behind": False}
    assert found["limits"]["k"] == 1000
    assert found["budget_ms"] == 10_000.0 and found["samples"] == []
    assert found["subject"] == ""


def test_every_address_is_in_the_reference_and_nothing_is_loaded_from_elsewhere(
    client: TestClient,
) -> None:
    schema = client.get("/openapi.json").json()
    page = client.get("/docs").text
    for path in ("/search", "/explain", "/v1/rerank", "/v2/rerank", "/doc", "/info", "/metrics"):
        assert path in schema["paths"]
        assert f"{path}</code>" in page
    assert "budget_ms" in page and "rank_fields" in page
    for operation in schema["paths"]["/search"].values():
        assert "4XX" in operation["responses"] and "422" not in operation["responses"]
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page)
    assert "<script" not in page and "style=" not in page


def test_the_page_is_served(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "<title>" in answer.text
    assert client.get("/index.html").text == answer.text


def test_reports_of_other_commands_are_served(options: Options, tmp_path: Path) -> None:
    (tmp_path / "clusters.json").write_text('{"clusters": []}')
    with in_process(replace(options, clusters=tmp_path / "clusters.json")) as client:
        assert client.get("/clusters").json() == {"clusters": []}
        assert client.get("/info").json()["reports"] == ["clusters"]
        assert client.get("/budget").status_code == 404
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad\.json cannot be read as JSON"):
        make_app(replace(options, curves=tmp_path / "bad.json"))


def test_reports_may_follow_when_the_service_is_up(options: Options, tmp_path: Path) -> None:
    path = tmp_path / "clusters.json"
    with in_process(replace(options, clusters=path, reports_pending=True)) as client:
        assert client.get("/info").json()["reports"] == ["clusters"]
        early = client.get("/clusters")
        assert early.status_code == 503 and int(early.headers["retry-after"]) >= 1
        assert "being measured" in early.json()["message"]
        path.write_text('{"clusters": []}')
        assert client.get("/clusters").json() == {"clusters": []}
    with pytest.raises(InputError, match=r"budget\.json does not exist"):
        make_app(replace(options, curves=tmp_path / "budget.json"))


def test_answers_are_plain_json(client: TestClient) -> None:
    """No number is written in a form that other languages cannot read."""
    body = client.post("/search", json={"query": "the cat"}).content

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(body, parse_constant=refuse)
