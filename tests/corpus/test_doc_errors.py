"""Bad documents: one sentence with the file, the line, what was expected, came, and to do."""

import gzip
import re
from pathlib import Path

import pytest

from glassrank.corpus import read_docs
from glassrank.errors import InputError

CASES = {
    "broken JSON": ("d.jsonl", '{"id": "1", "text": "x"}\n{"id"', 2, "broken JSON"),
    "deep JSON": ("d.jsonl", "[" * 100_000, 1, "broken JSON"),
    "not an object": ("d.jsonl", "[1]\n", 1, "expected one JSON object on the line, found a list"),
    "no id": ("d.jsonl", '{"text": "x"}', 1, "expected a field named doc_id, .*, found text"),
    "no text": ("d.jsonl", '{"id": "1"}', 1, "expected a field named text, .*, found id"),
    "empty id": ("d.jsonl", '{"id": " ", "text": "x"}', 1, "expected an id in 'id'"),
    "text not a string": (
        "d.jsonl",
        '{"id": "1", "text": ["x"]}',
        1,
        "expected a string in 'text', found a list",
    ),
    "text a number": ("d.jsonl", '{"id": "a", "text": 3}', 1, "in 'text', found an int; quote it"),
    "id not a string": ("d.jsonl", '{"id": 1.5, "text": "x"}', 1, "string in 'id', found a float"),
    "half a character": ("d.jsonl", '{"id": "1", "text": "\\ud800"}', 1, "surrogate"),
    "empty text": ("d.jsonl", '\n{"id": "1", "text": " "}', 2, "expected a text for document '1'"),
    "one column": ("d.tsv", "x\n", 1, "expected 2 .* columns separated by tabs, found 1"),
    "column lost": ("d.tsv", "1\tx\n2 y\n", 2, "expected 2 columns, .*, found 1"),
    "empty TSV text": ("d.tsv", "1\tx\n2\t\n", 2, "expected a text for document '2'"),
    "no CSV header": ("d.csv", "1,x\n", 1, "expected a header .* found 1, x"),
    "CSV column lost": ("d.csv", 'id,text\n1,"a\nb"\n2\n', 4, "expected 2 columns, .*, found 1"),
    "CSV quote open": ("d.csv", 'id,text\n1,"a\nb\n', 2, "expected a CSV row"),
    "DOC open at the end": ("d.trec", "\n<DOC>\n<DOCNO>1</DOCNO>\nx", 2, "expected </DOC>"),
    "DOC open at the next": (
        "d.trec",
        "<DOC><DOCNO>1</DOCNO>x\n<DOC><DOCNO>2</DOCNO>y</DOC>",
        1,
        "expected </DOC>",
    ),
    "no DOCNO": ("d.trec", "<DOC>\nx</DOC>", 1, "expected <DOCNO>"),
    "empty DOC": ("d.trec", "<DOC><DOCNO>1</DOCNO><P></P></DOC>", 1, "expected a text"),
    "empty file": ("d.txt", "\n", 1, "expected a text"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_error_names_file_and_line(tmp_path: Path, case: str) -> None:
    name, text, line, message = CASES[case]
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}:{line}: .*{message}") as error:
        list(read_docs(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["d.jsonl", "d.tsv", "d.csv", "d.trec", "d.txt"])
def test_invalid_utf_8_names_the_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\n\xe9\n")
    with pytest.raises(InputError, match=rf"{name}:2: invalid UTF-8 at byte 1"):
        list(read_docs(path))


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "d.tsv.gz"
    path.write_bytes(gzip.compress(b"1\tx\n" * 1000)[:-9])
    with pytest.raises(InputError, match=r"d\.tsv\.gz: the gzip data is damaged"):
        list(read_docs(path))


@pytest.mark.parametrize("name", ["d.jsonl", "d.tsv", "d.csv", "d.trec"])
def test_a_file_without_documents_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(InputError, match="has no documents"):
        list(read_docs(tmp_path / name))


def test_a_folder_without_documents_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no documents"):
        list(read_docs(tmp_path))


def test_an_unknown_extension_says_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "d.xyz").write_text("x")
    with pytest.raises(InputError, match=r"unknown extension; expected \.jsonl, .*name its format"):
        read_docs(tmp_path / "d.xyz")
    (doc,) = read_docs(tmp_path / "d.xyz", format="text")
    assert doc.text == "x"


def test_an_unknown_format_says_what_is_known() -> None:
    with pytest.raises(InputError, match="unknown format 'xml'; expected one of jsonl"):
        read_docs("d.xml", format="xml")


def test_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("x")
    with pytest.raises(InputError, match="unknown encoding 'nosuch'"):
        list(read_docs(tmp_path / "d.txt", encoding="nosuch"))
