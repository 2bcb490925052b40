"""`glassrank index --language`, as a user runs it."""

import json
from pathlib import Path

from command_line import Call

GERMAN = """\
{"id": "houses", "text": "Die Häuser am Stadtrand sind alt, und sie haben hohe Kosten."}
{"id": "prices", "text": "Der Preis eines alten Hauses ist in der Stadt gestiegen."}
{"id": "cats", "text": "Zwei Katzen schliefen in der Küche, und sie waren nicht laut."}
"""


def found(call: Call, query: str) -> set[str]:
    answer = json.loads(call("search", "my.index", query, "--json").stdout)
    return {hit["doc_id"] for hit in answer["hits"]}


def test_a_german_index_finds_other_forms_of_words(call: Call, files: Path) -> None:
    (files / "docs.jsonl").write_text(GERMAN)
    done = call("index", "docs.jsonl", "--out", "my.index", "--language", "de", "--json")
    assert json.loads(done.stdout)["language"] == "de"
    assert found(call, "Haus Preise") == {"houses", "prices"}
    (files / "more.jsonl").write_text('{"id": "castles", "text": "Alte Schlösser am See."}')
    assert call("index", "more.jsonl", "--out", "my.index", "--add").returncode == 0
    assert found(call, "Schloss") == {"castles"}
    refused = call("index", "more.jsonl", "--out", "my.index", "--add", "--language", "fr")
    assert refused.returncode == 2
    assert "has language 'de', not 'fr'" in refused.stderr


def test_documents_that_are_not_english_are_noticed(call: Call, files: Path) -> None:
    (files / "docs.jsonl").write_text(GERMAN)
    said = call("index", "docs.jsonl", "--out", "my.index").stderr
    assert "do not look English" in said
    said = call("index", "docs.jsonl", "--out", "de.index", "--language", "auto").stderr
    assert "do not look English" not in said


def test_a_language_that_is_not_known_is_named_before_any_work(call: Call, files: Path) -> None:
    refused = call("index", "docs.tsv", "--out", "my.index", "--language", "germn")
    assert refused.returncode == 2
    assert "did you mean german" in refused.stderr
    assert not (files / "my.index").exists()
