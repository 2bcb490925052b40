"""What people give to `rank`: each works, or gives one sentence."""

import asyncio
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_pipeline import texts, tiny_model

from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker, rank
from glassrank.types import Doc, Hit, Ranking

TEXTS = ["the dog", "the cat sat", "cold sea", "warm bird"]


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return Reranker(tiny_model(), exact=True)


class FilteredSeries:
    """As pandas has it after a filter: labels with gaps, by which it is indexed."""

    def __init__(self, values: dict[int, str]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values.values())

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, label: int) -> str:
        return self._values[label]


class Table:
    columns = ("text", "title")

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


def order(ranking: Ranking) -> list[Any]:
    return [hit.doc_id for hit in ranking]


def test_ids_are_places_unless_they_are_given(reranker: Reranker) -> None:
    places = order(rank("the cat", TEXTS, model=reranker))
    assert sorted(places) == [0, 1, 2, 3] and {type(place) for place in places} == {int}
    named = rank("the cat", TEXTS, model=reranker, ids=["a", "b", "c", "d"])
    assert order(named) == ["abcd"[place] for place in places]


@pytest.mark.parametrize(
    "given",
    [
        tuple(TEXTS),
        (text for text in TEXTS),
        np.array(TEXTS),
        FilteredSeries({3 * n + 5: text for n, text in enumerate(TEXTS)}),
        [{"text": text} for text in TEXTS],
        [Doc(f"d{n}", text) for n, text in enumerate(TEXTS)],
    ],
    ids=["tuple", "generator", "array", "series", "dicts", "docs"],
)
def test_texts_come_in_many_forms(reranker: Reranker, given: Any) -> None:
    expected = rank("the cat", TEXTS, model=reranker)
    found = rank("the cat", given, model=reranker)
    assert found.hits == expected.hits
    assert [hit.text for hit in found] == [TEXTS[hit.doc_id] for hit in found]


@pytest.mark.parametrize(
    ("query", "given", "options", "sentence"),
    [
        ("cat", "one text", {}, r"not one text; for a single one, give \[text\]"),
        ("cat", b"bytes", {}, "not one text"),
        ("cat", None, {}, "expected a list of texts, not None"),
        ("cat", 7, {}, "expected a list of texts, not an int"),
        ("cat", {"a": "text"}, {}, "not a dict; give its texts as a list"),
        ("cat", {"a", "b"}, {}, "not a set; give its texts as a list"),
        ("cat", Table(), {}, "not a Table; give its texts as a list or a column"),
        ("cat", ["a", None], {}, "text 1 is None; expected a text"),
        ("cat", ["a", float("nan")], {}, "text 1 is a float"),
        ("cat", ["a", b"b"], {}, "text 1 is a bytes"),
        ("cat", [{"body": "a"}], {}, "text 0 is a dict without a text under 'text'; it has 'body'"),
        ("cat", [{"text": None}], {}, "text 0 is a dict without a text"),
        ("cat", [{}], {}, "it has nothing"),
        (None, ["a"], {}, "the query must be a text, not None"),
        (["cat"], ["a"], {}, "the query must be a text, not a list"),
        ("cat", ["a"], {"k": -1}, "k must be a positive integer, not -1"),
        ("cat", ["a"], {"k": 0}, "k must be a positive integer, not 0"),
        ("cat", ["a"], {"k": 1.5}, "k must be a positive integer, not 1.5"),
        ("cat", ["a"], {"k": True}, "k must be a positive integer, not True"),
        ("cat", ["a"], {"budget_ms": float("nan")}, "more than 0 milliseconds, not nan"),
        ("cat", ["a"], {"budget_ms": -1}, "more than 0 milliseconds, not -1"),
        ("cat", ["a"], {"budget_ms": 0}, "more than 0 milliseconds, not 0"),
        ("cat", ["a"], {"budget_ms": "50"}, "more than 0 milliseconds, not '50'"),
        ("cat", ["a"], {"ids": []}, "0 ids for 1 texts"),
        ("cat", ["a"], {"ids": "a"}, "expected a list of ids, not a str"),
        ("cat", ["a"], {"model": 7}, "expected a model folder"),
        ("cat", ["a"], {"model": [3]}, "expected a model folder"),
    ],
)
def test_anything_else_is_one_sentence(
    reranker: Reranker, query: Any, given: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        rank(query, given, **{"model": reranker, **options})


@pytest.mark.parametrize(
    ("query", "k"), [(None, 10), ("cat", 0), ("cat", -1), ("cat", "3"), ("cat", None)]
)
def test_a_pipeline_says_the_same(index: Index, reranker: Reranker, query: Any, k: Any) -> None:
    with pytest.raises(InputError):
        Pipeline(index, reranker, calibrate=False)(query, k)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    docs = [
        Doc(f"d{n}", text, f"Title {n}", f"file {n}", {"year": 1990 + n})
        for n, text in enumerate(texts(12))
    ]
    return Index.build(docs, tmp_path_factory.mktemp("inputs") / "index")


def test_a_ranking_is_a_sequence(index: Index, reranker: Reranker) -> None:
    ranking = Pipeline(index, reranker)("the cat", k=5)
    assert ranking[0] == ranking.hits[0] and ranking[-1] == ranking.hits[4]
    assert ranking[1:3] == ranking.hits[1:3] and len(ranking) == 5
    with pytest.raises(IndexError):
        ranking[5]


def test_hits_carry_their_documents(index: Index, reranker: Reranker) -> None:
    ranking = Pipeline(index, reranker)("the cat", k=5)
    for hit in ranking:
        doc = index.doc(hit.doc_id)
        assert (hit.title, hit.text, hit.source) == (doc.title, doc.text, doc.source)
        assert hit.metadata == doc.metadata and hit.doc == doc
    given = [{"text": "the cat", "title": "Cats", "year": 2001, "metadata": {"by": "me"}}]
    [hit] = rank("cat", given, model=reranker)
    assert (hit.title, hit.metadata) == ("Cats", {"year": 2001, "by": "me"})
    alone = Hit(1, "a", 2.0)
    assert (alone.title, alone.text, alone.doc, dict(alone.metadata)) == ("", "", None, {})


def test_no_document_is_read_before_it_is_asked_for(
    index: Index, reranker: Reranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(index, reranker)
    ranking = pipeline("the cat", k=5)
    read: list[int] = []
    original = type(index.snapshot).doc

    def counted(snapshot: Any, number: int, characters: int | None = None) -> Doc:
        read.append(number)
        return original(snapshot, number, characters)

    monkeypatch.setattr(type(index.snapshot), "doc", counted)
    found = index.search("the cat", 5)
    assert read == []
    assert found[0].text and found[0].title and len(read) == 1
    assert ranking[0].text


def test_dicts_for_a_table(index: Index, reranker: Reranker) -> None:
    ranking = Pipeline(index, reranker)("the cat", k=5)
    rows = ranking.to_dicts()
    assert len({tuple(row) for row in rows}) == 1
    assert [row["title"] for row in rows] == [hit.title for hit in ranking]
    assert rows[0]["rank"] == 1 and rows[0]["doc_id"] == ranking[0].doc_id
    assert rows[0]["metadata"] == dict(index.doc(ranking[0].doc_id).metadata)


def test_hits_travel_to_other_processes_with_their_documents(
    index: Index, reranker: Reranker
) -> None:
    ranking = Pipeline(index, reranker)("the cat", k=2)
    again = pickle.loads(pickle.dumps(ranking))
    assert again.hits == ranking.hits
    assert [hit.text for hit in again] == [hit.text for hit in ranking]


def test_a_hit_has_a_snippet_and_the_name_of_who_placed_it(
    index: Index, reranker: Reranker
) -> None:
    named = Reranker(reranker.saved, exact=True, name="mine")
    [hit] = rank("cat sat", ["sea " * 500 + "the cat sat"], model=named)
    assert hit.snippet.startswith("sea sea") and len(hit.snippet) < 260  # of its best passage
    assert hit.ranked_by == "mine" and hit.passage == (0, 48)
    assert hit.to_dict()["snippet"] == hit.snippet == pickle.loads(pickle.dumps(hit)).snippet
    ranking = Pipeline(index, named)("the cat", k=2)
    assert [found.ranked_by for found in ranking] == ["mine"] * 2
    assert ranking.to_json()["hits"][0]["ranked_by"] == "mine"
    (found,) = index.search("the cat", 1)
    assert found.snippet == index.snippets("the cat")(found.text).text and found.ranked_by is None
    assert Hit(1, "a", 2.0).snippet == ""


def test_a_ranking_is_printed_as_a_table(index: Index, reranker: Reranker) -> None:
    ranking = Pipeline(index, reranker)("the cat", k=12)
    lines = str(ranking).splitlines()
    assert lines[0].startswith("the cat: 12 hits, 12 of 12 re-ranked in ")
    assert len(lines) == 12 and lines[-1] == "  … and 2 more"
    assert all(hit.title in line for hit, line in zip(ranking, lines[1:-1], strict=False))
    assert repr(ranking) == "Ranking('the cat', 12 hits, 12 re-ranked)"
    assert repr(replace(ranking, hits=ranking.hits[:1])).startswith("Ranking('the cat', 1 hit, ")


def test_pipelines_are_asked_with_await(index: Index, reranker: Reranker) -> None:
    pipeline = Pipeline(index, reranker)

    async def both() -> list[Ranking]:
        asked = pipeline.aquery("the cat", 3), pipeline.aquery("a dog", 2, where={"year": 1991})
        return list(await asyncio.gather(*asked))

    with ThreadPoolExecutor(1) as pool:  # a browser's tests may have an event loop in this one
        first, second = pool.submit(asyncio.run, both()).result()
    assert order(first) == order(pipeline("the cat", 3)) and len(second) <= 1
