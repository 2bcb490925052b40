"""Judgments in each format, and what is refused."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassrank.corpus import read_qrels, write_qrels
from glassrank.errors import InputError
from glassrank.types import Qrels

EXPECTED = {"1": {"a": 2, "b": 0}, "2": {"a": -2}}


@pytest.mark.parametrize(
    "text",
    [
        "1 0 a 2\n1 0 b 0\n2 0 a -2\n",
        "1\t0\ta\t2\r\n1\t0\tb\t0\r\n2\t0\ta\t-2",
        "query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t0\n2\ta\t-2\n",
        "1\ta\t2\n1\tb\t0\n\n2\ta\t-2\n",
        "1 0 a 2\n2 0 a -2\n1 0 b 0\n1 0 a 2\n",
    ],
    ids=["TREC", "MS MARCO", "BEIR", "BEIR without its header", "interleaved and repeated"],
)
def test_formats_agree(tmp_path: Path, text: str) -> None:
    path = tmp_path / "qrels.txt"
    path.write_bytes(text.encode())
    assert read_qrels(path) == EXPECTED


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1 0 a 2 0.5 x\n", 1, r"expected 4 columns \(query, .*\), 3 .* or 5 .*, found 6"),
        ("1 0 a 2\n1 a 2\n", 2, "expected 4 columns, as in the first line, found 3"),
        ("1 a 2\n1 0 a 2\n", 2, "expected 3 columns, as in the first line, found 4"),
        (
            "1 0 a high\n",
            1,
            "expected an integer relevance label of at most 9 digits, found 'high'",
        ),
        ("1 0 a 1.5\n", 1, "expected an integer relevance label of at most 9 digits, found '1.5'"),
        ("1 0 a 1\n1 0 a 2\n", 2, "expected one label for query '1' .* found 1 before and 2 here"),
    ],
)
def test_bad_judgments_name_file_and_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = tmp_path / "qrels.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}:{line}: {message}"):
        read_qrels(path)


def test_no_judgments_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "q").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(InputError, match="has no judgments"):
        read_qrels(tmp_path / "q")


ids = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)
grades = st.dictionaries(ids, st.integers(-2, 4), min_size=1)


@settings(max_examples=30)  # each writes a file
@given(st.dictionaries(ids, grades, min_size=1))
def test_writing_then_reading_is_identity(
    tmp_path_factory: pytest.TempPathFactory, qrels: Qrels
) -> None:
    path = tmp_path_factory.mktemp("qrels") / "qrels.txt.gz"
    write_qrels(qrels, path)
    assert read_qrels(path) == qrels


def test_an_id_with_a_space_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'a b' is empty or has a space"):
        write_qrels({"1": {"a b": 1}}, tmp_path / "qrels.txt")
    assert not list(tmp_path.iterdir())


def test_prels_have_five_columns(tmp_path: Path) -> None:
    path = tmp_path / "prels"
    path.write_text("10002 GX1 2 1 0.25\n10002 GX2 0 0 1.0\n10003 GX1 -1 1 0.5\n")
    assert read_qrels(path) == {"10002": {"GX1": 2, "GX2": 0}, "10003": {"GX1": -1}}
