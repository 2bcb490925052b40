"""`/explain`: the same explanations as in Python, for documents of the index and for any text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_service import COUNT, in_process, make_folders, message, tiny_tk
from starlette.testclient import TestClient

from glassrank.embeddings import encode_index
from glassrank.explanations import Change, Explanation, compare, explain, explain_docs, what_if
from glassrank.explanations.candidate_baseline import find_ranked_passage
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker
from glassrank.serve import Options

QUERY = "the cat sat"


@pytest.fixture(scope="module")
def rerankers(options: Options) -> dict[str, Reranker]:
    return {name: Reranker.load(folder) for name, folder in options.models}


@pytest.fixture(scope="module")
def stored(options: Options) -> Pipeline:
    """The model whose words are stored."""
    return Pipeline.open(options.index, dict(options.models)["tk"])


@pytest.fixture(scope="module")
def pipeline(options: Options) -> Pipeline:
    return Pipeline.open(options.index, dict(options.models)["tk"])


@pytest.fixture(scope="module")
def index(options: Options) -> Index:
    return Index(options.index)


def first_score(index: Index, doc_id: str, method: str = "bm25") -> float:
    return next(hit.score for hit in index.search(QUERY, COUNT, method) if hit.doc_id == doc_id)


def ask(client: TestClient, **asked: Any) -> Any:
    answer = client.post("/explain", json={"query": QUERY, **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


def own(
    pipeline: Pipeline, doc_id: str, first_stage: float, method: str | None = None
) -> Explanation:
    """What Python says, by the words that the store has."""
    (found,) = explain_docs(pipeline, QUERY, [doc_id], method=method)
    passage = find_ranked_passage(pipeline.stages[0], QUERY, doc_id, first_stage)
    alone = explain(
        pipeline.reranker,
        QUERY,
        pipeline.index.doc(doc_id),
        doc_id=doc_id,
        first_stage=first_stage,
        embeddings=pipeline.stages[0].read_embeddings(doc_id, passage.number if passage else 0),
        passage=passage,
    )
    # The first stage's share is divided among query words, where the index is known.
    assert replace(found, against=None, parts=alone.parts, terms=alone.terms) == alone
    values = [(part.name, part.value) for part in found.parts.children]
    assert values == [(p.name, pytest.approx(p.value)) for p in alone.parts.children]
    return found


def test_a_document_is_explained_as_it_was_ranked(client: TestClient, pipeline: Pipeline) -> None:
    hit = client.post("/search", json={"query": QUERY}).json()["hits"][0]
    found = ask(client, doc_id=hit["doc_id"])
    assert found["against"]["docs"] == found["against"]["of"] > 2
    assert found == own(pipeline, hit["doc_id"], hit["first_score"]).to_json()
    assert found["score"] == pytest.approx(hit["score"], rel=1e-5)
    assert ask(client, doc_id=hit["doc_id"], first_score=hit["first_score"]) == found


def test_what_similar_documents_add_is_a_part_of_the_score_that_was_listed(tmp_path: Path) -> None:
    options = make_folders(tmp_path)
    encode_index(Index(options.index), tiny_tk(), dtype="float16", graph=True)
    with in_process(options) as client:
        hits = client.post("/search", json={"query": QUERY}).json()["hits"]
        assert sum(bool(hit["regularization"]) for hit in hits) > 5
        for hit in hits:
            given = {"doc_id": hit["doc_id"], "regularization": hit["regularization"]}
            for asked in (given, {"doc_id": hit["doc_id"]}):
                found = ask(client, **asked)
                assert found["score"] == pytest.approx(hit["score"], abs=1e-4)
                assert found["parts"]["children"][-1]["value"] == hit["regularization"]


def test_the_first_stage_that_was_used_counts(client: TestClient, pipeline: Pipeline) -> None:
    found = ask(client, doc_id="d3", method="ql")
    assert found == own(pipeline, "d3", first_score(pipeline.index, "d3", "ql"), "ql").to_json()


def test_two_documents_side_by_side(client: TestClient, pipeline: Pipeline) -> None:
    pair = [own(pipeline, doc_id, first_score(pipeline.index, doc_id)) for doc_id in ("d1", "d2")]
    assert ask(client, doc_id=["d1", "d2"]) == compare(*pair).to_json()


def test_two_models_side_by_side(client: TestClient, rerankers: dict[str, Reranker]) -> None:
    text = "the cat sat on the cold mat"
    found = ask(client, text=text, model=["knrm", "tk"])
    own = [explain(rerankers[name], QUERY, text) for name in ("knrm", "tk")]
    assert found == compare(*own).to_json()


def test_given_texts_need_no_index(client: TestClient, rerankers: dict[str, Reranker]) -> None:
    texts = ["androgen receptor define", "the cat"]
    own = [explain(rerankers["knrm"], QUERY, text) for text in texts]
    assert ask(client, text=texts, model="knrm") == compare(*own).to_json()


def test_a_change_to_a_document_moves_it_among_what_was_found(
    client: TestClient, index: Index, rerankers: dict[str, Reranker]
) -> None:
    change = {"side": "document", "word": "cat", "by": "dog"}
    found = ask(client, doc_id="d1", change=change)
    hits = index.search(QUERY, 100)
    ids = [hit.doc_id for hit in hits]
    own = what_if(
        rerankers["tk"],
        QUERY,
        [index.doc(doc_id) for doc_id in ids],
        Change("document", "cat", "dog"),
        doc=ids.index("d1"),
        first_stage=[hit.score for hit in hits],
    )
    assert found == {**own.to_json(), "doc_ids": ids}


def test_a_change_to_the_query_among_given_texts(
    client: TestClient, rerankers: dict[str, Reranker]
) -> None:
    texts = ["the cat", "the dog", "a bird", "the sea"]
    found = ask(client, text=texts, model="knrm", change={"side": "query", "word": 1})
    own = what_if(rerankers["knrm"], QUERY, texts, Change("query", 1))
    assert found == {**own.to_json(), "doc_ids": []}
    assert found["query"] == "the  sat"


@pytest.mark.parametrize(
    ("asked", "status", "sentence"),
    [
        ({}, 400, "expected one of doc_id and text"),
        ({"doc_id": "d1", "text": "cat"}, 400, "expected one of doc_id and text"),
        ({"doc_id": "zebra"}, 404, "no document with the id 'zebra'"),
        ({"doc_id": ["d1", "d2", "d3"]}, 400, "expected one or two, not 3"),
        ({"text": "cat", "model": "bert"}, 400, "there is no model 'bert'"),
        ({"text": ["a", "b"], "model": ["tk", "knrm"]}, 400, "two models explain one"),
        ({"text": "cat", "first_score": [1.0, 2.0]}, 400, "first_score: expected 1"),
        ({"doc_id": "d1", "regularization": [0.1, 0.2]}, 400, "regularization: expected 1"),
        ({"text": "cat", "change": {"side": "document", "word": "dog"}}, 400, "no word 'dog'"),
        ({"text": "cat", "change": {"side": "left", "word": "dog"}}, 400, "change.side"),
    ],
)
def test_what_cannot_be_explained_is_said_in_a_sentence(
    client: TestClient, asked: dict[str, Any], status: int, sentence: str
) -> None:
    answer = client.post("/explain", json={"query": QUERY, **asked})
    assert answer.status_code == status
    assert sentence in message(answer)
