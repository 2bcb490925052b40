"""The query log: what was asked, shown, clicked and rated, and nothing about who did."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_service import in_process, message
from starlette.testclient import TestClient

from glassrank.errors import DiskError
from glassrank.serve import Limits, Options
from glassrank.serve.query_log import QueryLog, list_files


def read_events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def test_searches_clicks_and_ratings_are_logged(options: Options, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with in_process(replace(options, log=path)) as client:
        found = client.post("/search", json={"query": 'cat\n\u2028"dog', "k": 5}).json()
        ids = [hit["doc_id"] for hit in found["hits"]]
        for doc_id, action in ((ids[1], "click"), (ids[1], "up"), (ids[4], "down")):
            body = {"query_id": found["query_id"], "doc_id": doc_id, "action": action}
            assert client.post("/feedback", json=body).json() == {"status": "ok"}
        both = client.post("/search", json={"query": ["cat", "dog"], "model": "none"}).json()
    search, *feedback = read_events(path)[:4]
    assert search["query"] == 'cat\n\u2028"dog' and search["shown"] == ids
    assert search["model"] == "tk"
    assert {event["query_id"] for event in (search, *feedback)} == {found["query_id"]}
    assert [(event["action"], event["doc_id"]) for event in feedback] == [
        ("click", ids[1]),
        ("up", ids[1]),
        ("down", ids[4]),
    ]
    others = [result["query_id"] for result in both["results"]]
    assert [event["query_id"] for event in read_events(path)[4:]] == others
    assert len({found["query_id"], *others}) == 3


def test_nothing_in_the_log_identifies_a_client(options: Options, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with in_process(replace(options, log=path)) as client:
        headers = {"User-Agent": "Agent-007", "X-Forwarded-For": "192.0.2.7", "Cookie": "id=7"}
        client.get("/search?query=cat", headers=headers)
    (event,) = read_events(path)
    assert set(event) == {"action", "query_id", "time", "query", "model", "shown"}
    assert not any(part in path.read_text() for part in ("Agent", "192.0.2.7", "testclient"))
    assert path.stat().st_mode & 0o077 == 0  # queries may be personal


def test_by_default_there_is_no_log_and_no_endpoint(client: TestClient) -> None:
    assert "query_id" not in client.get("/search?query=cat").json()
    assert client.post("/feedback", json={}).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"query_id": "0" * 16, "doc_id": "d1", "action": "buy"}, 400),
        ({"query_id": "../../etc", "doc_id": "d1", "action": "click"}, 400),
        ({"query_id": "0" * 17, "doc_id": "d1", "action": "click"}, 400),
        ({"query_id": "0" * 16, "doc_id": "no such\n", "action": "click"}, 404),
        ({"query_id": "0" * 16, "doc_id": "d" * 3_000, "action": "click"}, 400),
        ({"query_id": "0" * 16, "doc_id": ["d1"], "action": "click"}, 400),
        ({"query_id": "0" * 16, "doc_id": "d1", "action": "click", "ip": "192.0.2.7"}, 400),
        ([], 400),
    ],
)
def test_hostile_feedback_is_refused_and_not_logged(
    options: Options, tmp_path: Path, body: Any, status: int
) -> None:
    path = tmp_path / "log.jsonl"
    with in_process(replace(options, log=path)) as client:
        response = client.post("/feedback", json=body)
    assert response.status_code == status and message(response)
    assert path.read_bytes() == b""


def test_a_log_that_fails_costs_no_request(options: Options, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "log.jsonl"
    path.parent.mkdir()
    with in_process(replace(options, log=path)) as client:
        path.unlink()
        path.mkdir()
        assert client.get("/search?query=cat").status_code == 200


def test_a_log_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path, tmp_path / "no" / "log.jsonl", tmp_path / "link"):
        with pytest.raises(DiskError, match="query log"):
            QueryLog(path, Limits())
    assert not (tmp_path / "elsewhere").exists()


def test_writers_that_share_a_log_lose_no_line_and_rotate_once(tmp_path: Path) -> None:
    path, count = tmp_path / "log.jsonl", 300
    line = len(json.dumps({"action": "click", "query_id": "0" * 16, "time": 1_700_000_000})) + 1
    limits = Limits(query_log_bytes=100 * line)
    logs = [QueryLog(path, limits) for _ in range(2)]  # as two processes have them

    def write(number: int) -> None:
        logs[number % 2].write("click", f"{number:016x}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(2 * count)))
    files = [file for file in list_files(path) if file.exists()]
    events = [event for file in files for event in read_events(file)]
    assert {int(event["query_id"], 16) for event in events} == set(range(2 * count))
    assert len(files) <= 8 and len(events) == 2 * count


def test_a_log_that_another_process_has_just_rotated_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = QueryLog(path, Limits())
    path.replace(tmp_path / "log.jsonl.1")  # the other process has not written yet
    log.write("click", "a" * 16)
    assert [event["query_id"] for event in read_events(path)] == ["a" * 16]
