"""Filters by metadata: chosen before the best k are taken, over segments and changes."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.index.filters import parse_filter
from glassrank.types import Doc, Query

DOCS = [
    Doc("a", "a cat", metadata={"year": 2018, "lang": "en", "peer": True, "tags": ["x", "y"]}),
    Doc("b", "cat cat", metadata={"year": 2019, "lang": "de", "peer": False, "tags": ["y"]}),
    Doc("c", "cat cat cat", metadata={"year": 2020.5, "lang": "fr", "when": "2020-05-01"}),
    Doc("d", "the cat sat", metadata={"lang": "en", "price": "9", "when": "2021-01-01"}),
    Doc("e", "cat on a mat", metadata={"price": "10", "deep": {"is": "not compared"}}),
    Doc("f", "cat", "no fields at all"),
]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """In two segments, with a document deleted from the first."""
    gone = Doc("gone", "cat", metadata={"year": 2019, "lang": "en"})
    index = Index.build([*DOCS[:2], gone, DOCS[2]], tmp_path / "my.index")
    index.add(DOCS[3:])
    index.delete(["gone"])
    return index


def found(index: Index, where: Any, method: str = "bm25") -> set[str]:
    return {hit.doc_id for hit in index.search("cat", 10, method, where=where)}


CASES: list[tuple[Any, str]] = [
    ({"lang": "en"}, "ad"),
    ({"lang": ["en", "de"]}, "abd"),
    ({"year": {">=": 2019}}, "bc"),
    ({"year": {">": 2018, "<": 2020}}, "b"),
    ({"year": 2018.0}, "a"),
    ({"year": {">=": 2019}, "lang": "de"}, "b"),
    ({"peer": True}, "a"),
    ({"tags": "y"}, "ab"),
    ({"tags": {"in": ["x", "z"]}}, "a"),
    ({"when": {">=": "2020-06"}}, "d"),
    ({"price": {">": 9}}, "e"),  # texts that are numbers
    ({"price": 9}, "d"),
    ({}, "abcdef"),
    ("lang=en", "ad"),
    ("lang == en", "ad"),
    ("lang in en, de", "abd"),
    ("year>=2019", "bc"),
    (["year > 2018", "year<2020"], "b"),
    ("peer=true", "a"),
    ("price>9", "e"),
    ("price=10", "e"),
    ("when>=2020-06", "d"),
    ("when>2021", "d"),
]


@pytest.mark.parametrize(("where", "expected"), CASES)
def test_what_fits_is_found(index: Index, where: Any, expected: str) -> None:
    assert found(index, where) == set(expected)


@pytest.mark.parametrize(("where", "expected"), CASES)
def test_a_merge_changes_nothing(index: Index, where: Any, expected: str) -> None:
    index.merge()
    assert found(index, where) == set(expected)


@pytest.mark.parametrize("method", ["bm25", "ql", "bm25+rm3", "ql+rm3"])
def test_every_method_is_filtered(index: Index, method: str) -> None:
    assert found(index, {"lang": "en"}, method) == {"a", "d"}


@pytest.mark.parametrize("compiled", [True, False])
def test_compiled_and_plain_code_filter_alike(
    index: Index, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    monkeypatch.setattr("glassrank.index.search.is_worth_compiling", lambda *_: compiled)
    for where, expected in CASES:
        assert found(index, where) == set(expected)


def test_the_filter_comes_before_the_best_are_taken(tmp_path: Path) -> None:
    """The best thousand of all would hold none of those that fit."""
    many = [Doc(f"best{n}", "cat cat cat", metadata={"lang": "en"}) for n in range(2000)]
    few = [Doc(f"worst{n}", "cat " + "mat " * 30, metadata={"lang": "de"}) for n in range(3)]
    index = Index.build([*many, *few], tmp_path / "my.index")
    assert found(index, "lang=de") == {"worst0", "worst1", "worst2"}
    run = index.retrieve([Query("q", "cat")], 2, where={"lang": "de"})
    assert run.doc_ids == ["worst0", "worst1"]


def test_scores_stay_those_of_the_whole_index(index: Index) -> None:
    everything = {hit.doc_id: hit.score for hit in index.search("cat mat")}
    for hit in index.search("cat mat", where={"lang": ["en", "fr"]}):
        assert hit.score == everything[hit.doc_id]
        assert hit.metadata["lang"] in ("en", "fr")


def test_an_index_that_changes_is_filtered_as_it_is(index: Index) -> None:
    index.add([Doc("b", "cat", metadata={"lang": "en", "new": 1})], replace=True)
    assert found(index, {"lang": "en"}) == {"a", "b", "d"}
    assert found(index, {"new": {"<=": 1}}) == {"b"}
    index.delete(["a"])
    assert found(index, {"lang": "en"}) == {"b", "d"}


def test_without_a_filter_no_field_is_read(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("fields are read")

    monkeypatch.setattr("glassrank.index.segment.Segment.metadata", fail)
    assert len(index.search("cat")) == 6
    with pytest.raises(AssertionError, match="fields are read"):
        index.search("cat", where={"lang": "en"})


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ({"yaer": 2019}, "no document has a field 'yaer'; did you mean 'year'?"),
        ("colour=red", "no document has a field 'colour'; known: deep, lang"),
        ({"year": "2019"}, "'year' has numbers; it cannot be compared by = with '2019'"),
        ("year>=soon", "'year' has numbers; it cannot be compared by >= with 'soon'"),
        ({"lang": {">": 3}}, "'lang' has texts; it cannot"),
        ({"peer": {">": True}}, "'peer' has true and false"),
        ({"deep": "x"}, "'deep' has no values that can be compared"),
        ({"year": None}, "takes numbers, texts, true and false, not None"),
        ({"year": float("nan")}, "takes numbers"),
        ({"year": [[1]]}, "takes numbers"),
        ({"year": {"~": 1}}, "cannot compare by '~'; known are =, <"),
        ({"year": {"in": 3}}, "known are"),
        ({"year": {}}, "is empty"),
        ({3: 4}, "the name of a field is a text"),
        ("year", "'year' is not a condition; write one as 'lang=en'"),
        ("=3", "is not a condition"),
        ("", "is not a condition"),
        (7, "a filter is"),
        ([7], "a filter is"),
        (["a=1"] * 33, "at most 32 conditions"),
        ({"year": list(range(1001))}, "of 1,000 values each"),
        ("x" * 10_001, "at most 10,000 characters"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(index: Index, where: Any, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        index.search("cat", where=where)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_an_index_without_fields_says_so(tmp_path: Path) -> None:
    index = Index.build([Doc("a", "cat")], tmp_path / "my.index")
    with pytest.raises(InputError, match="documents have only title, text and source"):
        index.search("cat", where="lang=en")


values = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["1", "-2", "x", "2.0"])


@given(
    rows=st.lists(values | st.lists(values, max_size=3), min_size=1, max_size=8),
    compare=st.sampled_from(["=", "<", "<=", ">", ">="]),
    wanted=st.integers(-3, 3),
    split=st.integers(0, 8),
)
@settings(max_examples=60, deadline=None)
def test_numbers_compare_as_they_would_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Any],
    compare: str,
    wanted: int,
    split: int,
) -> None:
    docs = [Doc(f"d{n}", "cat", metadata={"f": row}) for n, row in enumerate(rows)]
    index = Index.build(docs[:split] or docs, tmp_path_factory.mktemp("rows") / "my.index")
    if docs[:split] and docs[split:]:
        index.add(docs[split:])

    def numbers(value: Any) -> list[float]:
        if isinstance(value, list):
            return [number for one in value for number in numbers(one)]
        if isinstance(value, str):
            return [] if value == "x" else [float(value)]
        return [] if value is None or isinstance(value, bool) else [value]

    def fits(number: float) -> bool:
        return {
            "=": number == wanted,
            "<": number < wanted,
            "<=": number <= wanted,
            ">": number > wanted,
            ">=": number >= wanted,
        }[compare]

    try:
        chosen = found(index, {"f": {compare: wanted}})
    except InputError:
        assert not any(map(numbers, rows))
    else:
        assert chosen == {f"d{n}" for n, row in enumerate(rows) if any(map(fits, numbers(row)))}


@given(st.text(max_size=40) | st.text("ab <>=in,", max_size=20))
@settings(max_examples=500, deadline=None)
def test_whatever_is_written_is_read_or_one_sentence(text: str) -> None:
    try:
        (condition,) = parse_filter(text)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert condition.field.strip() == condition.field != ""
