"""Indexes in other languages than English: what is found, kept, added and shown."""

# ruff: noqa: RUF001

import json
from pathlib import Path

import pytest

from glassrank.cluster.building import build_shards
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.index.snapshot import MANIFEST_FILE
from glassrank.types import Doc

COLLECTIONS = {
    "de": {
        "houses": "Die Häuser am Stadtrand haben hohe Kosten.",
        "prices": "Der Preis eines alten Hauses steigt.",
        "cats": "Zwei Katzen schliefen in der Küche.",
    },
    "fr": {
        "horses": "Les chevaux mangeaient l'herbe de la prairie.",
        "houses": "Une maison ancienne dans la ville.",
        "schools": "L'école des enfants est fermée.",
    },
    "es": {
        "houses": "Las casas antiguas cuestan más dinero.",
        "children": "Los niños comieron rápidamente.",
        "cities": "La ciudad tiene muchas calles.",
    },
    "ru": {
        "books": "Она читала интересные книги.",
        "houses": "Старые дома стоят в городе.",
        "cats": "Кошка спит на кухне.",
    },
    "zh": {
        "houses": "北京的房价上涨了，因为人们购买新的公寓。",
        "cats": "两只猫睡在厨房里。",
        "trains": "高速铁路连接上海和北京。",
    },
    "ja": {
        "houses": "東京の古い家の価格は高い。",
        "cats": "二匹の猫が台所で寝ている。",
        "cameras": "新しいカメラを買いました。",
    },
}
QUERIES = [
    ("de", "Haus Preise", ["prices", "houses"]),
    ("de", "haeuser", ["houses", "prices"]),
    ("de", "Katze", ["cats"]),
    ("fr", "cheval qui mange", ["horses"]),
    ("fr", "écoles d'enfant", ["schools"]),
    ("es", "casa antigua", ["houses"]),
    ("es", "niño comer rapido", ["children"]),
    ("ru", "книга", ["books"]),
    ("ru", "старый дом", ["houses"]),
    ("zh", "房价", ["houses"]),
    ("zh", "北京铁路", ["trains", "houses"]),
    ("ja", "古い家", ["houses"]),
    ("ja", "ｶﾒﾗ", ["cameras"]),
]


def docs_of(language: str) -> list[Doc]:
    return [Doc(doc_id, text) for doc_id, text in COLLECTIONS[language].items()]


def all_docs() -> list[Doc]:
    return [
        Doc(f"{language}-{doc.doc_id}", doc.text)
        for language in COLLECTIONS
        for doc in docs_of(language)
    ]


def ids(index: Index, query: str) -> list[str]:
    return [hit.doc_id for hit in index.search(query)]


@pytest.mark.parametrize(("language", "query", "expected"), QUERIES)
def test_inflected_queries_find_documents(
    tmp_path: Path, language: str, query: str, expected: list[str]
) -> None:
    index = Index.build(docs_of(language), tmp_path / "my.index", language=language)
    assert sorted(ids(index, query)) == sorted(expected)


@pytest.mark.parametrize(("language", "query", "expected"), QUERIES)
def test_a_mixed_index_finds_documents_of_each_language(
    tmp_path: Path, language: str, query: str, expected: list[str]
) -> None:
    index = Index.build(all_docs(), tmp_path / "my.index", language="auto")
    best = ids(index, query)[: len(expected)]
    assert sorted(best) == sorted(f"{language}-{doc_id}" for doc_id in expected)


def test_the_language_is_kept_and_used_for_what_is_added(tmp_path: Path) -> None:
    path = tmp_path / "my.index"
    Index.build(docs_of("de"), path, language="german")
    index = Index(path)
    assert index.language == "de"
    index.add([Doc("villas", "Alte Villen am See.")])
    assert ids(Index(path), "Villa See")[0] == "villas"
    index.merge()
    assert ids(Index(path), "alter See")[0] == "villas"


def test_a_mixed_index_learns_the_languages_of_what_is_added(tmp_path: Path) -> None:
    path = tmp_path / "my.index"
    index = Index.build(docs_of("de"), path, language="auto")
    reader = Index(path)
    assert index.analyzer.languages == ("de",)
    index.add([Doc("books", "Она читала интересные книги в библиотеке.")])
    assert index.analyzer.languages == ("de", "ru")
    assert ids(index, "книга") == ["books"]
    assert reader.refresh()
    assert ids(reader, "книга") == ["books"]
    assert "prices" in ids(reader, "Preise")


def test_an_index_without_a_language_is_english(tmp_path: Path) -> None:
    path = tmp_path / "my.index"
    index = Index.build([Doc("d1", "Cats chase mice.")], path)
    assert index.language == "en"
    manifest = json.loads((path / MANIFEST_FILE).read_text())
    assert "lucene-english-1" in json.dumps(manifest)  # as in indexes of earlier versions


def test_overwriting_changes_the_language(tmp_path: Path) -> None:
    path = tmp_path / "my.index"
    Index.build([Doc("d1", "Cats chase mice.")], path)
    assert Index.build(docs_of("de"), path, overwrite=True, language="de").language == "de"
    assert Index(path).language == "de"


def test_an_index_of_another_stemmer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my.index"
    Index.build(docs_of("de"), path, language="de")
    monkeypatch.setattr("glassrank.text.languages._snowball_version", lambda: "9.9")
    monkeypatch.setattr(
        "glassrank.text.languages._word_analyzer",
        __import__("glassrank.text.languages", fromlist=["x"])._word_analyzer.__wrapped__,
    )
    with pytest.raises(InputError, match=r"snowball-3.*snowball-9\.9.*build the index again"):
        Index(path)


def test_shards_have_the_language_of_their_index(tmp_path: Path) -> None:
    whole = Index.build(all_docs(), tmp_path / "whole.index", language="auto")
    shards = build_shards(all_docs(), tmp_path / "shards.index", 3, source="toys", language="auto")
    assert len(shards.snapshot.segments) > 1
    assert shards.analyzer.name == whole.analyzer.name
    for _, query, _ in QUERIES:
        found, expected = shards.search(query), whole.search(query)
        assert [(hit.doc_id, hit.score) for hit in found] == [
            (hit.doc_id, hit.score) for hit in expected
        ]


@pytest.mark.parametrize(
    ("language", "query", "text", "marked"),
    [
        ("de", "Haus Preise", "Die HÄUSER sind alt. Der Preis steigt.", ["HÄUSER", "Preis"]),
        ("fr", "cheval", "L'herbe des Chevaux", ["Chevaux"]),
        ("ja", "ガラス", "古いｶﾞﾗｽの窓", ["ｶﾞﾗ", "ﾗｽ"]),
        ("auto", "Haus", "Die Häuser sind alt, und der Preis steigt.", ["Häuser"]),
    ],
)
def test_snippets_mark_the_words_of_other_languages(
    tmp_path: Path, language: str, query: str, text: str, marked: list[str]
) -> None:
    index = Index.build([Doc("d1", text)], tmp_path / "my.index", language=language)
    snippet = index.snippets(query)(text)
    assert [snippet.text[start:stop] for start, stop in snippet.matches] == marked


def test_feedback_terms_may_be_of_any_script(tmp_path: Path) -> None:
    docs = [Doc(f"d{n}", f"слово{n} книга") for n in range(60)]
    docs += [Doc(f"e{n}", "книга библиотека") for n in range(3)]
    docs += [Doc("target", "библиотека")]
    index = Index.build(docs, tmp_path / "my.index", language="ru")
    assert "target" not in ids(index, "книга")
    found = index.search("книга", 100, "bm25+rm3(docs=100,terms=100)")
    assert "target" in [hit.doc_id for hit in found]
