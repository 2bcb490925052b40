"""Fields of documents from a file to a filter, and bad documents that are skipped."""

import json
from pathlib import Path

import pytest
from command_line import Call

DOCS = [
    {"id": "a", "text": "the cat sat", "lang": "en", "year": 2018},
    {"id": "b", "text": "a cat sat", "lang": "de", "year": 2019},
    {"id": "c", "text": "no cat sat", "lang": "fr", "year": 2020},
]


@pytest.fixture
def fields(call: Call, files: Path) -> Path:
    (files / "fields.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
    assert call("index", "fields.jsonl", "--out", "fields.index").returncode == 0
    return files / "fields.index"


def ids(stdout: str) -> list[str]:
    return sorted(hit["doc_id"] for hit in json.loads(stdout)["hits"])


def test_search_is_filtered_and_hits_have_their_fields(call: Call, fields: Path) -> None:
    search = ("search", "fields.index", "cat", "--json", "--where")
    assert ids(call(*search, "year>=2019").stdout) == ["b", "c"]
    assert ids(call(*search, "lang in en,de").stdout) == ["a", "b"]
    found = call(*search, "year>=2019", "--where", "lang=de").stdout
    assert json.loads(found)["hits"][0]["metadata"] == {"lang": "de", "year": 2019}
    nothing = call("search", "fields.index", "dog", "--where", "lang=de")
    assert "no document that matches --where" in nothing.stdout


def test_search_with_a_model_is_filtered(call: Call, fields: Path) -> None:
    done = call(
        *("search", "fields.index", "cat", "--model", "default", "--json", "--where", "lang=fr")
    )
    assert ids(done.stdout) == ["c"], done.stderr
    assert json.loads(done.stdout)["found"] == 1


def test_retrieve_is_filtered(call: Call, fields: Path) -> None:
    (fields.parent / "q.tsv").write_text("q1\tcat\n")
    done = call("retrieve", "fields.index", "q.tsv", "--out", "x.run", "--where", "year<2020")
    assert done.returncode == 0, done.stderr
    lines = (fields.parent / "x.run").read_text().splitlines()
    assert sorted(line.split()[2] for line in lines) == ["a", "b"]


def test_a_filter_that_is_wrong_is_one_sentence(call: Call, fields: Path) -> None:
    for where, sentence in (("yaer=1", "did you mean 'year'?"), ("year", "is not a condition")):
        done = call("search", "fields.index", "cat", "--where", where)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ") and sentence in done.stderr
        assert done.stderr.count("\n") == 1


def test_bad_documents_are_skipped_and_counted(call: Call, files: Path) -> None:
    lines = [json.dumps(DOCS[0]), "{broken", '{"id": "e", "text": ""}', json.dumps(DOCS[1])]
    (files / "some.jsonl").write_text("\n".join(lines))
    assert call("index", "some.jsonl", "--out", "new.index").returncode == 2
    done = call("index", "some.jsonl", "--out", "new.index", "--skip-bad")
    assert done.returncode == 0
    assert "new.index: 2 documents" in done.stderr
    said = " ".join(done.stderr.split())
    assert "skipped 2 bad documents; the first: some.jsonl:2: expected one JSON object" in said
    done = call("index", "some.jsonl", "--out", "other.index", "--skip-bad", "--json")
    assert json.loads(done.stdout)["skipped"] == 2
    alone = call("index", "--out", "new.index", "--delete", "a", "--skip-bad")
    assert alone.returncode == 2 and "--skip-bad needs documents" in alone.stderr
