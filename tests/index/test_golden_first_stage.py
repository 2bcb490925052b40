"""Rankings and scores of a fixed collection; golden_first_stage.json names its script."""

import json

import pytest
from golden_texts import DOCS, QUERIES
from make_golden import PATH, golden

from glassrank.index import Index
from glassrank.types import Doc

RANKINGS = json.loads(PATH.read_text())["rankings"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    docs = (Doc(doc_id, text) for doc_id, text in DOCS.items())
    return Index.build(docs, tmp_path_factory.mktemp("golden") / "index")


@pytest.mark.parametrize("query_id", QUERIES)
@pytest.mark.parametrize("method", RANKINGS)
def test_ranking_and_scores(index: Index, method: str, query_id: str) -> None:
    expected = RANKINGS[method][query_id]
    found = index.search(QUERIES[query_id], 100, method)
    assert [hit.doc_id for hit in found] == [doc_id for doc_id, _ in expected]
    assert [hit.score for hit in found] == pytest.approx(
        [score for _, score in expected], rel=1e-5, abs=2e-6
    )


def test_the_file_is_what_its_script_writes() -> None:
    assert json.loads(json.dumps(golden())) == RANKINGS


def test_rounded_lengths_and_feedback_matter_here() -> None:
    """Or the file would not tell the methods apart."""
    assert RANKINGS["bm25"]["question"] != RANKINGS["bm25(rounded=1)"]["question"]
    for base in ("bm25", "ql"):
        assert len(RANKINGS[f"{base}+rm3"]["one"]) > len(RANKINGS[base]["one"])
