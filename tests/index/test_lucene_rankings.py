"""Rankings and measures as real Lucene gives them, on four shared collections."""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from glassrank.corpus import read_docs, read_qrels, read_queries, read_run
from glassrank.index import Index
from glassrank.research.evaluate import evaluate
from glassrank.types import Run

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
LUCENE = SHARED / "reference" / "lucene"
COLLECTIONS = [
    *["cacm", "cranfield", "nfcorpus"],
    pytest.param("medquad", marks=pytest.mark.slow),  # `-m data` runs it too
]
METHODS = {"bm25": "bm25", "ql": "qld", "bm25+rm3": "bm25_rm3", "ql+rm3": "qld_rm3"}

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not LUCENE.is_dir(), reason="shared/reference/lucene is not there"),
]


@pytest.fixture(scope="module", params=COLLECTIONS)
def index(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Index]:
    folder = SHARED / "data" / request.param
    if not folder.is_dir():
        pytest.skip(f"shared/data/{request.param} is not there")
    docs = read_docs(folder / "collection.tsv.gz")
    return request.param, Index.build(docs, tmp_path_factory.mktemp(request.param) / "index")


@lru_cache(maxsize=8)
def retrieve(index: tuple[str, Index], method: str, depth: int) -> Run:
    name, opened = index
    queries = read_queries(SHARED / "data" / name / "queries.test.tsv.gz")
    return opened.retrieve(queries, depth, method)


def top(run: Run, depth: int) -> dict[str, list[str]]:
    return {query_id: docs[:depth] for query_id, docs, _ in run.items()}


def lucene_top(name: str, method: str, depth: int) -> dict[str, list[str]]:
    return top(read_run(LUCENE / name / f"{METHODS[method]}.top100.run.gz"), depth)


def agreement(ours: dict[str, list[str]], theirs: dict[str, list[str]]) -> float:
    """The part of their documents that we have too, mean over queries."""
    return float(
        np.mean([len({*docs} & {*ours[query]}) / len(docs) for query, docs in theirs.items()])
    )


@pytest.mark.parametrize("method", METHODS)
def test_measures_are_within_a_hundredth(index: tuple[str, Index], method: str) -> None:
    qrels = read_qrels(SHARED / "data" / index[0] / "qrels.test.txt.gz")
    expected = json.loads((LUCENE / "metrics.json").read_bytes())[index[0]][METHODS[method]]
    measures = ["nDCG@10", "AP@1000"]
    found = evaluate(retrieve(index, method, 1000), qrels, measures).mean
    assert found == pytest.approx({name: expected[name] for name in measures}, abs=0.01)


@pytest.mark.parametrize("method", ["bm25", "ql"])
def test_the_first_ten_are_nearly_the_same(index: tuple[str, Index], method: str) -> None:
    ours = top(retrieve(index, method, 1000), 10)
    assert agreement(ours, lucene_top(index[0], method, 10)) >= 0.95


@pytest.mark.parametrize("method", METHODS)
def test_with_rounded_lengths_the_first_hundred_are_the_same(
    index: tuple[str, Index], method: str
) -> None:
    rounded = method.replace("bm25", "bm25(rounded=1)").replace("ql", "ql(rounded=1)")
    ours = top(retrieve(index, rounded, 100), 100)
    theirs = lucene_top(index[0], method, 100)
    assert agreement(ours, theirs) >= 0.999
    # And in the same places, but for scores that differ in the last bits only.
    same = [ours[query][rank] == doc for query in theirs for rank, doc in enumerate(theirs[query])]
    assert np.mean(same) >= 0.999
