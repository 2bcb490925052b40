"""Documents joined from articles: read in passages they are ranked better than cut."""

import argparse
import gzip
import sys
from pathlib import Path

import pytest

from glassrank.corpus import read_docs, read_qrels, read_queries

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import long_documents

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "wiki-headings"


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(not FOLDER.is_dir(), reason="shared/data/wiki-headings is not there")
def test_passages_are_ranked_better_than_documents_that_are_cut() -> None:
    options = argparse.Namespace(
        folder=FOLDER, model="default", split="test", budget_ms=50.0, depth=100, dtype="int8",
        overlap=0, best=1, titles=True,
    )  # fmt: skip
    found, about = long_documents.measured(options)
    row = found["nDCG@10"]
    assert row.difference > 0
    assert row.corrected_p < 0.05
    assert about["passages"]["passages"] > 4 * about["documents"]  # type: ignore[index, operator]


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    files = {
        "collection.tsv.gz": [
            *["p0\tA cat.", "p1\tIt eats.", "p2\tOnce a cat."],
            *["p3\tA dog.", "p4\tIt barks.", "p5\tOnce a dog."],
        ],
        "queries.train.tsv.gz": ["q0\tcat", "q2\tcat history", "q3\tdog", "q4\tdog voice"],
        "qrels.train.txt.gz": ["q0 0 p0 1", "q2 0 p2 1", "q3 0 p3 1", "q4 0 p4 1"],
        "queries.test.tsv.gz": ["q1\tcat food", "q5\tdog history"],
        "qrels.test.txt.gz": ["q1 0 p1 1", "q5 0 p5 1"],
    }
    for name, rows in files.items():
        (tmp_path / name).write_bytes(gzip.compress("\n".join(rows).encode()))
    return tmp_path


def test_passages_of_one_title_are_joined(passages: Path) -> None:
    docs, queries, qrels = long_documents.joined(passages, "test", titles=True)
    assert [(doc.title, doc.text) for doc in docs] == [
        ("cat", "A cat. It eats. Once a cat."),
        ("dog", "A dog. It barks. Once a dog."),
    ]
    assert queries == {"q1": "cat food", "q5": "dog history"}
    assert qrels == {"q1": {"a0": 1}, "q5": {"a1": 1}}


def test_documents_are_written_with_the_queries_of_all_splits(passages: Path) -> None:
    out = passages / "written"
    long_documents.write(passages, out)
    assert [(doc.doc_id, doc.text) for doc in read_docs(str(out / "collection.tsv.gz"))] == [
        ("a0", "A cat. It eats. Once a cat."),
        ("a1", "A dog. It barks. Once a dog."),
    ]
    of_cat, of_dog = {"a0": 1}, {"a1": 1}
    for split, qrels in (
        ("train", {"q0": of_cat, "q2": of_cat, "q3": of_dog, "q4": of_dog}),
        ("test", {"q1": of_cat, "q5": of_dog}),
    ):
        asked = {q.query_id: q.text for q in read_queries(str(out / f"queries.{split}.tsv.gz"))}
        assert asked == long_documents.joined(passages, split, titles=False)[1]
        assert read_qrels(str(out / f"qrels.{split}.txt.gz")) == qrels
