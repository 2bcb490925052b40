"""Documents joined from articles: read in passages they are ranked better than cut."""

import argparse
import gzip
import sys
from pathlib import Path

import pytest

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


def test_passages_of_one_title_are_joined(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))

    write("collection.tsv.gz", "p0\tA cat.\np1\tIt eats.\np2\tA dog.\n")
    write("queries.train.tsv.gz", "q0\tcat\nq2\tdog\n")
    write("queries.test.tsv.gz", "q1\tcat food\n")
    write("qrels.train.txt.gz", "q0 0 p0 1\nq2 0 p2 1\n")
    write("qrels.test.txt.gz", "q1 0 p1 1\n")
    docs, queries, qrels = long_documents.joined(tmp_path, "test", titles=True)
    assert [(doc.title, doc.text) for doc in docs] == [
        ("cat", "A cat. It eats."),
        ("dog", "A dog."),
    ]
    assert (queries, qrels) == ({"q1": "cat food"}, {"q1": {"a0": 1}})
