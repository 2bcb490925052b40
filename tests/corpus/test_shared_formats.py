"""The formats as TREC and MS MARCO really publish them: topics, judgments and a run."""

from collections import Counter
from pathlib import Path

import pytest

from glassrank.corpus import read_qrels, read_queries, read_run

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "trec-topics-qrels"

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="shared/data/trec-topics-qrels is not there"),
]


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("topics.dl19-doc.txt.gz", 43, ("156493", "do goldfish grow")),
        ("topics.dl19-passage.txt.gz", 43, ("156493", "do goldfish grow")),
        ("topics.dl20.txt.gz", 200, ("1030303", "who is aziz hashim")),
        ("topics.msmarco-doc.dev.txt.gz", 5193, None),
        ("topics.msmarco-passage.dev-subset.txt.gz", 6980, None),
        ("topics.robust04.txt.gz", 250, ("301", "International Organized Crime")),
        ("topics.web.1-50.txt.gz", 50, ("1", "obama family tree")),
        ("topics.web.51-100.txt.gz", 50, ("51", "horse hooves")),
        ("topics.web.101-150.txt.gz", 50, ("101", "ritz carlton lake las vegas")),
        ("topics.web.151-200.txt.gz", 50, ("151", "403b")),
    ],
)
def test_topics(name: str, count: int, first: tuple[str, str] | None) -> None:
    queries = read_queries(FOLDER / name)
    assert len(queries) == count
    assert first is None or queries[0] == first


@pytest.mark.parametrize("name", ["topics.robust04.txt.gz", "topics.web.1-50.txt.gz"])
def test_topic_descriptions(name: str) -> None:
    for query in read_queries(FOLDER / name, field="desc"):
        assert len(query.text.split()) > 3
        assert "Description" not in query.text


@pytest.mark.parametrize(("version", "count"), [("v1.5", 2125), ("v2.0", 2254)])
def test_car_sections(version: str, count: int) -> None:
    queries = read_queries(FOLDER / f"topics.car17{version}.benchmarkY1test.txt.gz", format="car")
    assert len(queries) == count
    assert read_qrels(FOLDER / f"qrels.car17{version}.benchmarkY1test.txt.gz").keys() <= {
        query.query_id for query in queries
    }


@pytest.mark.parametrize(
    ("name", "queries", "judgments"),
    [
        ("qrels.dl19-doc.txt.gz", 43, 16258),
        ("qrels.dl19-passage.txt.gz", 43, 9260),
        ("qrels.dl20-doc.txt.gz", 45, 9098),
        ("qrels.dl20-passage.txt.gz", 54, 11386),
        ("qrels.msmarco-doc.dev.txt.gz", 5193, 5193),
        ("qrels.msmarco-passage.dev-subset.txt.gz", 6980, 7437),
        ("qrels.robust2004.txt.gz", 249, 311410),
        ("qrels.web.51-100.txt.gz", 48, 25329),
        ("qrels.web.101-150.txt.gz", 50, 19381),
        ("qrels.web.151-200.txt.gz", 50, 16055),
    ],
)
def test_judgments(name: str, queries: int, judgments: int) -> None:
    qrels = read_qrels(FOLDER / name)
    assert len(qrels) == queries
    assert sum(map(len, qrels.values())) == judgments


def test_prels() -> None:
    """Sampled judgments: the grade is their third column."""
    qrels = read_qrels(FOLDER / "prels.web.1-50.txt.gz")
    grades = Counter(grade for judged in qrels.values() for grade in judged.values())
    assert len(qrels) == 50 and grades == {0: 9116, 1: 2514, 2: 1488}


def test_run() -> None:
    run = read_run(FOLDER / "rob04_yang19_rm3.run.gz")
    assert len(run.doc_ids) == 250_000
    assert run.query_ids[0] == "302"
    assert run.doc_ids[0] == "FBIS4-67701"
    assert run.scores[0] == 6.5455
