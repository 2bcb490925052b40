"""`/search`: the pipeline's own ranking, with what a page needs to show it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_service import COUNT, SCRIPT, in_process, message
from starlette.testclient import TestClient

from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.rerank import CostModel, Pipeline
from glassrank.serve import IndexReloader, Options

QUERY = "the cat sat"


@pytest.fixture(scope="module")
def pipeline(options: Options) -> Pipeline:
    return Pipeline.open(options.index, dict(options.models)["tk"])


def test_hits_are_the_pipelines_own(client: TestClient, pipeline: Pipeline) -> None:
    found = client.post("/search", json={"query": QUERY, "k": 7}).json()
    own = pipeline(QUERY, 7)
    assert [
        (hit["rank"], hit["doc_id"], hit["first_rank"], hit["first_score"]) for hit in found["hits"]
    ] == [(hit.rank, hit.doc_id, hit.first_rank, hit.first_score) for hit in own]
    assert [hit["score"] for hit in found["hits"]] == pytest.approx([hit.score for hit in own])
    assert found["depth"] == COUNT
    assert (found["model"], found["method"]) == ("tk", "bm25")
    assert all(hit["reranked"] for hit in found["hits"])


def test_hits_carry_what_is_shown(client: TestClient, options: Options) -> None:
    index = Index(options.index)
    for hit in client.post("/search", json={"query": QUERY, "k": COUNT}).json()["hits"]:
        doc, snippet = index.doc(hit["doc_id"]), hit["snippet"]
        assert (hit["title"], hit["source"]) == (doc.title, doc.source)
        assert snippet["matches"]
        for start, stop in snippet["matches"]:
            assert snippet["text"][start:stop] in ("cat", "sat")


def test_the_address_can_say_it_all(client: TestClient) -> None:
    asked = {"query": QUERY, "k": 3, "method": "ql", "model": "knrm", "budget_ms": 1000.0}
    by_body = client.post("/search", json=asked).json()
    by_address = client.get("/search", params=asked).json()
    assert by_address["hits"] == by_body["hits"]
    assert by_address["method"] == "ql" and by_address["model"] == "knrm"


def test_another_first_stage_is_used(client: TestClient, options: Options) -> None:
    found = client.post(
        "/search", json={"query": QUERY, "method": "ql(mu=50)+rm3", "model": "none", "k": 5}
    ).json()
    own = Index(options.index).search(QUERY, 5, "ql(mu=50)+rm3")
    assert [(hit["doc_id"], hit["score"]) for hit in found["hits"]] == [
        (hit.doc_id, hit.score) for hit in own
    ]
    assert found["depth"] == 0 and found["model"] == "none"
    assert not any(hit["reranked"] for hit in found["hits"])


def test_a_list_of_queries_has_a_list_of_answers(client: TestClient) -> None:
    queries = ["cat", "cold sea", "nothing of this", "bird"]
    found = client.post("/search", json={"query": queries, "k": 2}).json()["results"]
    assert [answer["query"] for answer in found] == queries
    assert found[2]["hits"] == []
    for query, answer in zip(queries, found, strict=True):
        alone = client.post("/search", json={"query": query, "k": 2}).json()
        assert answer["hits"] == alone["hits"]
    assert client.get("/search", params={"query": queries, "k": 2}).json()["results"][3]["hits"]


@pytest.mark.parametrize("ask", [{"stream": True}, {}])
def test_a_stream_sends_the_first_stage_before_the_final_hits(
    client: TestClient, options: Options, ask: dict[str, bool]
) -> None:
    headers = {} if ask else {"Accept": "application/x-ndjson"}
    answer = client.post("/search", json={"query": QUERY, "k": 5, **ask}, headers=headers)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    first, final = map(json.loads, answer.text.splitlines())
    own = Index(options.index).search(QUERY, 5)
    assert (first["stage"], final["stage"]) == ("first_stage", "final")
    assert [hit["doc_id"] for hit in first["hits"]] == [hit.doc_id for hit in own]
    whole = client.post("/search", json={"query": QUERY, "k": 5}).json()
    assert [hit["doc_id"] for hit in final["hits"]] == [hit["doc_id"] for hit in whole["hits"]]
    assert final["depth"] == COUNT and first["depth"] == 0
    assert [hit["doc_id"] for hit in first["hits"]] != [hit["doc_id"] for hit in final["hits"]]


def test_a_stream_of_several_queries_says_which_it_speaks_of(client: TestClient) -> None:
    answer = client.post("/search", json={"query": ["cat", "dog"], "stream": True})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [(line["number"], line["stage"]) for line in lines] == [
        (0, "first_stage"),
        (0, "final"),
        (1, "first_stage"),
        (1, "final"),
    ]
    alone = client.post("/search", json={"query": "cat", "model": "none", "stream": True})
    assert json.loads(alone.text)["stage"] == "final"


def test_every_millisecond_is_somewhere(client: TestClient) -> None:
    found = client.post("/search", json={"query": QUERY}).json()
    timing = found["timing_ms"]
    names = ["queue", "first_stage", "query", "scoring", "sorting", "snippets"]
    assert [stage["name"] for stage in found["stages"]] == names
    assert list(timing) == [*names, "total"]
    spent = sum(stage["ms"] for stage in found["stages"])
    assert 0.5 * timing["total"] < spent <= timing["total"] + 0.01
    assert found["stages"][3]["documents"] == COUNT


def test_without_snippets_there_are_ids_and_scores_alone(client: TestClient) -> None:
    found = client.post("/search", json={"query": QUERY, "snippets": False}).json()
    assert set(found["hits"][0]) == {
        *("rank", "doc_id", "score", "first_rank", "first_score", "reranked", "probability"),
        *("passage", "truncated", "ranked_by", "found_by", "neighbour_of", "regularization"),
    }


def test_a_budget_that_is_too_small_leaves_the_first_stages_order(options: Options) -> None:
    reloader = IndexReloader(options)
    pipeline = reloader.current.pipelines["tk"]
    pipeline.stages[0].cost = CostModel(base=1000.0)  # for anything at all: more than there is
    with in_process(options, reloader) as client:
        found = client.post("/search", json={"query": QUERY, "budget_ms": 500, "k": 5}).json()
    own = pipeline.index.search(QUERY, 5)
    assert found["depth"] == 0
    assert [hit["doc_id"] for hit in found["hits"]] == [hit.doc_id for hit in own]


def test_a_document_full_of_html_stays_text(client: TestClient) -> None:
    answer = client.post("/search", json={"query": "alert script"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    [hit] = answer.json()["hits"]
    assert hit["snippet"]["text"] == SCRIPT and hit["title"] == "<i>title</i>"
    doc = client.get("/doc", params={"id": hit["doc_id"]}).json()
    assert doc["text"] == SCRIPT and doc["doc_id"] == "../<html>?&"


def test_a_document_is_returned_whole(client: TestClient, options: Options) -> None:
    doc = client.get("/doc", params={"id": "d4"}).json()
    own = Index(options.index).doc("d4")
    assert doc == {
        "doc_id": "d4",
        "text": own.text,
        "title": "A title",
        "source": "file:4",
        "metadata": {"n": 4},
    }
    for unknown in ("zebra", "../index", "/etc/passwd"):
        answer = client.get("/doc", params={"id": unknown})
        assert answer.status_code == 404 and repr(unknown) in message(answer)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, "query: field required"),
        ({"query": ""}, "expected some words"),
        ({"query": []}, "not empty"),
        ({"query": ["cat", " "]}, "expected some words"),
        ({"query": "cat", "k": 0}, "k: input should be greater than or equal to 1"),
        ({"query": "cat", "k": "many"}, "k: input should be a valid integer"),
        ({"query": "cat", "budget_ms": 0}, "budget_ms: input should be greater than 0"),
        ({"query": "cat", "budget_ms": 1e9}, "budget_ms: at most 10,000"),
        ({"query": "cat", "buget_ms": 5}, "buget_ms: extra inputs are not permitted"),
        (
            {"query": "cat", "model": "bert"},
            "no model 'bert' here; the models are: tk, knrm",
        ),
        ({"query": "cat", "method": "bm52"}, "did you mean bm25?"),
        ({"query": "cat", "method": "bm25(k1=9999)"}, "k1 must be between"),
        ({"query": 5}, "query"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_sentence(
    client: TestClient, asked: dict[str, object], sentence: str
) -> None:
    answer = client.post("/search", json=asked)
    assert answer.status_code == 400
    assert sentence in message(answer)
    assert str(Path.cwd()) not in answer.text


def test_without_a_model_there_is_still_the_first_stage(options: Options) -> None:
    with in_process(replace(options, models=(), method="ql")) as client:
        found = client.post("/search", json={"query": QUERY}).json()
        assert (found["model"], found["method"], found["depth"]) == ("none", "ql", 0)
        answer = client.post("/v2/rerank", json={"query": "cat", "documents": ["a"]})
        assert answer.status_code == 400 and "has no model" in message(answer)


def test_models_one_after_the_other(options: Options) -> None:
    """Under their names joined, and first: each hit says who placed it, and who explains it."""
    with in_process(replace(options, cascade=True)) as client:
        info = client.get("/info").json()["models"]
        assert [(model["name"], model["kind"]) for model in info] == [
            *(("tk+knrm", "tk+knrm"), ("tk", "tk"), ("knrm", "knrm"))
        ]
        found = client.post("/search", json={"query": QUERY, "k": 5}).json()
        assert found["model"] == "tk+knrm"
        names = [stage["name"] for stage in found["stages"]]
        assert names[-4:-2] == ["query_2", "scoring_2"]
        assert {hit["ranked_by"] for hit in found["hits"]} == {"knrm"}
        alone = client.post("/search", json={"query": QUERY, "k": 5, "model": "knrm"}).json()
        assert {hit["ranked_by"] for hit in alone["hits"]} == {"knrm"}
        for hit in found["hits"]:
            asked = {"query": QUERY, "doc_id": hit["doc_id"]}
            shown = [
                client.post("/explain", json={**asked, "model": model}).json()
                for model in (hit["ranked_by"], "tk+knrm")
            ]
            assert shown[0] == shown[1] and shown[0]["model"] == "knrm"
            assert shown[0]["score"] == pytest.approx(hit["score"], abs=1e-4)
        ids = [hit["doc_id"] for hit in found["hits"][:2]]
        asked = {"query": QUERY, "doc_id": ids, "model": ["tk", "knrm"]}  # each by its own
        pair = client.post("/explain", json=asked).json()
        assert [pair[side]["model"] for side in ("left", "right")] == ["tk", "knrm"]
        assert [pair[side]["doc_id"] for side in ("left", "right")] == ids
        assert pair["right"]["score"] == pytest.approx(found["hits"][1]["score"], abs=1e-4)
        assert pair["parts"] is None and pair["sentence"] == ""  # on no common scale
        lines = client.post("/search", json={"query": QUERY, "stream": True}).text.splitlines()
        assert [json.loads(line)["stage"] for line in lines] == ["first_stage", "final"]
        ranked = client.post("/v2/rerank", json={"query": QUERY, "documents": ["dog", "the cat"]})
        assert ranked.json()["model"] == "tk+knrm" and len(ranked.json()["results"]) == 2


def test_a_cascade_needs_several_models(options: Options) -> None:
    with pytest.raises(InputError, match="--cascade needs several models"):
        replace(options, cascade=True, models=options.models[:1])
    with pytest.raises(InputError, match="--plan needs --cascade"):
        replace(options, plan=Path("plan.json"))


@pytest.mark.parametrize("model", ["tk", "none"])
def test_documents_are_chosen_by_their_metadata(client: TestClient, model: str) -> None:
    asked = {"query": "cat", "k": 40, "model": model, "budget_ms": 9000}
    for where in ({"n": {">=": 30}}, ["n>=30"]):
        hits = client.post("/search", json={**asked, "where": where}).json()["hits"]
        assert sorted(hit["metadata"]["n"] for hit in hits) == list(range(30, 39))
    several = [("where", "n>=30"), ("where", "n in 3,33,35"), *asked.items()]
    hits = client.get("/search", params=[(name, str(value)) for name, value in several]).json()
    assert sorted(hit["metadata"]["n"] for hit in hits["hits"]) == [33, 35]


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ({"m": 1}, "no document has a field 'm'"),
        (["n"], "'n' is not a condition"),
        ({"n": {"~": 1}}, "cannot compare by '~'"),
        ({"n": "x"}, "'n' has numbers"),
        (["n=1"] * 33, "where"),
        (3, "where"),
    ],
)
def test_a_filter_that_is_wrong_is_one_sentence(
    client: TestClient, where: Any, sentence: str
) -> None:
    answer = client.post("/search", json={"query": "cat", "where": where})
    assert answer.status_code == 400 and sentence in message(answer)
