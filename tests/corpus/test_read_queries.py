"""Queries in each format, and what is refused."""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassrank.corpus import read_queries, write_queries
from glassrank.errors import InputError
from glassrank.types import Query

TOPICS = """<top>

<num> Number: 301
<title> International Organized
Crime

<desc> Description:
Identify organizations & people.

<narr> Narrative:
A relevant document must ...
</top>

<top>
<num> Number: 302 <title> Topic: Poliomyelitis &amp; Post-Polio
<desc> Is polio under control?
</top>
"""

WEB_TOPICS = """<?xml version="1.0"?>
<!DOCTYPE webtrack2009 [ <!ELEMENT topic (query, description, subtopic+)> ]>
<webtrack2009>
<topic number="1" type="faceted">
  <query>obama family tree</query>
  <description>Find information on
  his family.
  </description>
  <subtopic number="2" type="nav">Find a photo.</subtopic>
</topic>
</webtrack2009>
"""


def write(tmp_path: Path, text: str, name: str = "queries.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["q.tsv", "q.txt.gz"])
def test_tsv(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, "2\t Androgen receptor define\nb\tx y\n\n", name)
    assert read_queries(path) == [Query("2", "Androgen receptor define"), Query("b", "x y")]


def test_jsonl_of_beir(tmp_path: Path) -> None:
    path = write(tmp_path, '{"_id": "1", "text": "owls", "metadata": {}}\n', "queries.jsonl")
    assert read_queries(path) == [Query("1", "owls")]


def test_trec_topics_by_field(tmp_path: Path) -> None:
    path = write(tmp_path, TOPICS)
    assert read_queries(path) == [
        Query("301", "International Organized Crime"),
        Query("302", "Poliomyelitis & Post-Polio"),
    ]
    assert read_queries(path, field="desc") == [
        Query("301", "Identify organizations & people."),
        Query("302", "Is polio under control?"),
    ]


def test_web_track_topics_by_field(tmp_path: Path) -> None:
    path = write(tmp_path, WEB_TOPICS)
    assert read_queries(path) == [Query("1", "obama family tree")]
    assert read_queries(path, field="desc") == [Query("1", "Find information on his family.")]


def test_car_sections_are_their_own_text(tmp_path: Path) -> None:
    path = write(tmp_path, "enwiki:Air%20ioniser/Uses\n")
    assert read_queries(path, format="car") == [
        Query("enwiki:Air%20ioniser/Uses", "Air ioniser Uses")
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1\tx\n2 y\n", 2, r"expected 2 columns separated by a tab \(query id, text\), found 1"),
        ("1\tx\ty\n", 1, "expected 2 columns .* found 3"),
        ("1\tx\n2\t \n", 2, "expected an id and a text, found '2' and ''"),
        ("\tx\n", 1, "expected an id and a text, found ''"),
        (
            "1\tx\n2\ty\n1\tz\n",
            3,
            r"expected each query id once, found '1' again \(first at line 1",
        ),
        ('{"_id": "1", "text": "x"}\n{"_id": "2"', 2, ".*broken JSON"),
        ('{"_id": "1"}', 1, "expected an id and a text"),
        ('{"text": "x"}', 1, "expected a field named query_id"),
        ("\n<top>\n<num> 1\n<title> x\n", 2, "expected </top>"),
        ("<top>\n<num> 1\n<title> x\n<top>\n<num> 2\n<title> y\n</top>", 1, "expected </top>"),
        ("<top>\n<title> x\n</top>", 1, "expected <num>"),
        ("<top>\n<num> 1\n</top>", 1, "expected <title> in topic 1"),
    ],
)
def test_bad_queries_name_file_and_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}:{line}: {message}"):
        read_queries(path)


def test_no_queries_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no queries"):
        read_queries(write(tmp_path, ""))


def test_an_unknown_field_or_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown field 'body'; expected one of title, desc, narr"):
        read_queries("q.tsv", field="body")
    with pytest.raises(InputError, match="unknown format 'xml'; expected one of tsv"):
        read_queries("q.tsv", format="xml")


words = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)


@settings(max_examples=30)  # each writes a file
@given(st.dictionaries(words, words, min_size=1), st.sampled_from(["q.tsv", "q.jsonl.gz"]))
def test_writing_then_reading_is_identity(
    tmp_path_factory: pytest.TempPathFactory, queries: dict[str, str], name: str
) -> None:
    path = tmp_path_factory.mktemp("queries") / name
    expected = [Query(*item) for item in queries.items()]
    write_queries(expected, path)
    kind = "tsv" if name == "q.tsv" else "jsonl"  # an id may begin with `{` or `<`
    assert read_queries(path, format=kind) == expected


def test_a_text_with_a_tab_needs_jsonl(tmp_path: Path) -> None:
    queries = [Query("1", "a\tb")]
    with pytest.raises(InputError, match="which TSV cannot hold"):
        write_queries(queries, tmp_path / "q.tsv")
    assert not list(tmp_path.iterdir())
    write_queries(queries, tmp_path / "q.jsonl")
    assert read_queries(tmp_path / "q.jsonl") == queries
