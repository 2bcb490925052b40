"""However small the parts that fit in memory are, the index is the same."""

import random
from pathlib import Path

import pytest

from glassrank.errors import DuplicateIdError
from glassrank.index import Index
from glassrank.types import Doc

WORDS = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "owl", "pig", "rat", "yak"]
METHODS = ["bm25", "ql", "bm25+rm3", "ql+rm3"]


def some_docs(count: int) -> list[Doc]:
    chance = random.Random(1)
    return [
        Doc(f"d{i}", " ".join(chance.choices(WORDS, range(1, 13), k=chance.randrange(30))), f"t{i}")
        for i in chance.sample(range(count), count)
    ]


def files(index: Index) -> dict[str, bytes]:
    (segment,) = index.snapshot.segments
    return {path.name: path.read_bytes() for path in segment.folder.iterdir()}


@pytest.mark.parametrize(
    ("constant", "value"),
    [
        ("writer.SEGMENT_BYTES", 1),
        ("writer.SEGMENT_BYTES", 2000),
        ("segment_writer.POSTINGS_AT_ONCE", 1),
        ("segment_writer.POSTINGS_AT_ONCE", 100),
    ],
)
def test_small_parts_give_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, constant: str, value: int
) -> None:
    docs = some_docs(40)
    whole = Index.build(docs, tmp_path / "whole")
    monkeypatch.setattr(f"glassrank.index.{constant}", value)
    assert files(Index.build(docs, tmp_path / "parts")) == files(whole)


@pytest.mark.parametrize("docs_at_once", [1, 7])
def test_merging_in_small_blocks_gives_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docs_at_once: int
) -> None:
    docs = some_docs(40)
    whole = Index.build(docs, tmp_path / "whole")
    monkeypatch.setattr("glassrank.index.segment_builder.DOCS_AT_ONCE", docs_at_once)
    monkeypatch.setattr("glassrank.index.writer.SEGMENT_BYTES", 1500)
    assert files(Index.build(docs, tmp_path / "parts")) == files(whole)


def test_a_duplicate_in_another_part_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassrank.index.writer.SEGMENT_BYTES", 1)
    with pytest.raises(DuplicateIdError, match="'d7'"):
        Index.build([*some_docs(10), Doc("d7", "again")], tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("method", METHODS)
def test_scores_do_not_depend_on_the_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    docs = some_docs(40)
    whole = Index.build(docs, tmp_path / "whole")
    parts = Index.build(docs[:7], tmp_path / "parts")
    monkeypatch.setattr("glassrank.index.writer.IndexWriter.merge_small", lambda self: None)
    for start in range(7, 40, 9):
        parts.add(docs[start : start + 9])
    assert len(parts.snapshot.segments) == 5
    for query in ("ant", "owl cat", "yak rat pig hen", "bee bee fox"):
        for k in (1, 10, 100):
            assert parts.search(query, k, method).hits == whole.search(query, k, method).hits


def test_many_additions_leave_few_segments(tmp_path: Path) -> None:
    index = Index.build([Doc("first", "ant")], tmp_path / "index")
    for number in range(25):
        index.add([Doc(f"d{number}", "bee")])
        assert len(index.snapshot.segments) <= 5
    assert len(index) == 26
