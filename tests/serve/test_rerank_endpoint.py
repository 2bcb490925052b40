"""`/v1/rerank` and `/v2/rerank`: Cohere's and Jina's forms, our scores."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_service import in_process, message
from starlette.testclient import TestClient

from glassrank.rerank import CostModel, Reranker
from glassrank.rerank.relevance import relevance_scores, squash
from glassrank.serve import IndexReloader, Options
from glassrank.serve.loaded import LoadedIndex
from glassrank.types import Hit, Ranking

QUERY = "the cat sat"
TEXTS = ["dog", "the cat sat", "a cold sea", "cat cat cat", "the warm mat"]


@pytest.fixture(scope="module")
def order(options: Options) -> list[int]:
    """The model's own."""
    own = Reranker.load(dict(options.models)["tk"]).scores(QUERY, TEXTS).values
    return [int(place) for place in np.argsort(-own, kind="stable")]


def ask(client: TestClient, version: int = 2, **asked: Any) -> Any:
    answer = client.post(f"/v{version}/rerank", json={"query": QUERY, **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("version", [1, 2])
def test_results_come_in_the_models_order(
    client: TestClient, order: list[int], version: int
) -> None:
    found = ask(client, version, documents=TEXTS, model="tk")
    assert [result["index"] for result in found["results"]] == order
    scores = [result["relevance_score"] for result in found["results"]]
    assert all(0 <= low < high <= 1 for high, low in pairwise(scores))
    assert found["meta"]["api_version"] == {"version": str(version)}
    assert found["meta"]["warnings"] == []
    assert found["id"] != ask(client, version, documents=TEXTS)["id"]


def test_top_n_cuts_the_list(client: TestClient, order: list[int]) -> None:
    found = ask(client, documents=TEXTS, top_n=2)
    assert [result["index"] for result in found["results"]] == order[:2]
    assert len(ask(client, documents=TEXTS, top_n=99)["results"]) == len(TEXTS)


def test_documents_are_returned_if_asked_for(client: TestClient, order: list[int]) -> None:
    found = ask(client, 1, documents=TEXTS, return_documents=True)
    assert [result["document"] for result in found["results"]] == [
        {"text": TEXTS[place]} for place in order
    ]
    assert "document" not in ask(client, 1, documents=TEXTS)["results"][0]


def test_jinas_form(client: TestClient, order: list[int]) -> None:
    """It returns documents unless told otherwise, and says which model it was, and its usage."""
    found = ask(client, 1, model="jina-reranker-v2-base-multilingual", documents=TEXTS, top_n=1)
    assert found["model"] == "tk" and found["object"] == "list"
    assert found["results"][0]["document"] == {"text": TEXTS[order[0]]}
    words = 3 * len(TEXTS) + sum(len(text.split()) for text in TEXTS)
    assert found["usage"]["total_tokens"] == words
    assert "jina-reranker" in found["meta"]["warnings"][0]


def test_objects_keep_their_fields(client: TestClient, order: list[int]) -> None:
    objects = [{"text": text, "n": number} for number, text in enumerate(TEXTS)]
    found = ask(client, 1, documents=objects, return_documents=True)
    assert [result["document"]["n"] for result in found["results"]] == order


def test_fields_that_make_up_the_text_can_be_chosen(client: TestClient, order: list[int]) -> None:
    objects = [
        {"a": text.partition(" ")[0], "b": text.partition(" ")[2], "text": "sea"} for text in TEXTS
    ]
    found = ask(client, 1, documents=objects, rank_fields=["a", "b"])
    assert [result["index"] for result in found["results"]] == order


def test_what_was_not_read_is_said(client: TestClient) -> None:
    found = ask(client, documents=["cat " * 12 * 65, "cat " * 13], max_tokens_per_doc=9, priority=3)
    assert found["meta"]["warnings"] == ["of 1 documents not all passages were read"]


def test_what_no_model_reaches_is_in_the_order_of_bm25(options: Options) -> None:
    reloader = IndexReloader(replace(options, models=options.models[:1]))
    reloader.current.pipelines["tk"].reranker.cost = CostModel(base=1000.0)
    with in_process(options, reloader) as client:
        found = ask(client, documents=TEXTS, budget_ms=500)
    assert [result["index"] for result in found["results"]] == [1, 3, 0, 2, 4]
    assert found["meta"]["warnings"] == [
        "budget used up at depth 0; the other 5 documents are below, ordered by BM25"
    ]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"documents": []}, "documents: expected at least one"),
        ({}, "documents: field required"),
        ({"documents": TEXTS, "query": " "}, "expected some words"),
        ({"documents": TEXTS, "top_n": 0}, "top_n: input should be greater"),
        ({"documents": ["a", 5]}, "documents.1"),
        ({"documents": ["a", {"title": "b"}]}, "documents.1: expected a text, or an object"),
        ({"documents": [{"text": "b"}], "rank_fields": ["x", "y"]}, "an object with x or y"),
    ],
)
def test_what_cannot_be_ranked_is_said_in_a_sentence(
    client: TestClient, asked: dict[str, Any], sentence: str
) -> None:
    answer = client.post("/v2/rerank", json={"query": QUERY, **asked})
    assert answer.status_code == 400
    assert sentence in message(answer)


@given(st.floats(-1e6, 1e6, width=32), st.floats(-1e6, 1e6, width=32))
def test_relevance_is_in_the_order_of_scores(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= squash(low) <= squash(high) <= 1
    if high - low > 1e-3:
        assert squash(low) < squash(high)


def test_relevance_of_a_calibrated_model_is_a_probability() -> None:
    """Each model's own, unchanged; texts that no model came to stand below all of them."""
    hits = [Hit(1, "2", 3.0, ranked_by="b", probability=0.6), Hit(2, "0", 1.0, ranked_by="a")]
    last = Hit(3, "1", 0.0)
    calibrated = [hits[0], hits[1]._replace(probability=0.8), last, last]
    assert relevance_scores(Ranking("", tuple(calibrated))) == pytest.approx([0.6, 0.8, 0.3, 0.2])
    assert relevance_scores(Ranking("", (*hits, last))) == [
        squash(score) for score in (3.0, 1.0, 0.0)
    ]
    assert relevance_scores(Ranking("", (last,))) == [0.5]


def test_texts_meet_the_fast_model_first() -> None:
    """They are not encoded yet; what is stored is ranked by the better one alone."""

    def pipeline(*rerankers: str) -> Any:
        stages = [SimpleNamespace(reranker=name) for name in rerankers]
        return SimpleNamespace(stages=stages, reranker=rerankers[0])

    both = {"default": pipeline("better"), "fast": pipeline("faster")}
    loaded = LoadedIndex(cast(Any, None), both, cast(Any, None))
    assert loaded.list_rerankers("default") == ["faster", "better"]
    assert loaded.list_rerankers("fast") == ["faster"]
    one = LoadedIndex(cast(Any, None), {"default": both["default"]}, cast(Any, None))
    assert one.list_rerankers("default") == ["better"]
