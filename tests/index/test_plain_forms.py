"""Plain forms of compiled code equal it to the byte, and stand in for it where little is done."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank import Doc, Index
from glassrank.backends.compiled import is_worth_compiling, use_compiled_code
from glassrank.index import packed_postings, search, segment_checks
from glassrank.storage.mapped_arrays import as_readonly

WORDS = "cat dog bird fish tree house river stone cloud wind".split()


def some_docs(count: int, seed: int = 0) -> list[Doc]:
    random = np.random.default_rng(seed)
    return [
        Doc(f"d{i}", " ".join(random.choice(WORDS, random.integers(0, 12)))) for i in range(count)
    ]


def plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "is_worth_compiling", lambda numbers: False)
    monkeypatch.setattr(segment_checks, "is_worth_compiling", lambda numbers: False)
    monkeypatch.setattr(packed_postings, "is_worth_compiling", lambda numbers: False)

    def refuse(*_: Any) -> None:
        raise AssertionError("compiled code was called")

    monkeypatch.setattr(search, "search_segment", refuse)
    monkeypatch.setattr(packed_postings, "unpack_postings", refuse)
    monkeypatch.setattr(packed_postings, "postings_are_valid", refuse)


@pytest.mark.parametrize("method", ["bm25", "bm25(k1=1.2,b=0.75)", "bm25(rounded=1)", "bm25+rm3"])
def test_a_plain_search_finds_the_same_with_the_same_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    index = Index.build([*some_docs(5_000), Doc("long", "cat " * 300)], tmp_path / "my.index")
    index.add(some_docs(40, seed=1), replace=True)
    index.delete([f"d{i}" for i in range(100, 2_000, 7)])
    queries = ["cat", "cat dog bird", "wind wind stone", "nothing of it", "", " ".join(WORDS)]
    expected = {(q, k): index.search(q, k, method).hits for q in queries for k in (1, 10, 9_000)}
    plainly(monkeypatch)
    opened = Index(index.path)
    assert expected == {(q, k): opened.search(q, k, method).hits for q, k in expected}


@given(st.lists(st.binary(max_size=3), max_size=6), st.booleans())
def test_strings_in_order(strings: list[bytes], in_order: bool) -> None:
    strings = sorted(set(strings)) if in_order else strings
    offsets = np.cumsum([0, *map(len, strings)])
    data = np.frombuffer(b"".join(strings), np.uint8)
    assert segment_checks._ascend_numpy(offsets, data) == bool(
        segment_checks._ascend(offsets, data)
    )


@given(st.lists(st.lists(st.integers(0, 6), max_size=4), max_size=5))
def test_rows_counted(rows: list[list[int]]) -> None:
    rows = [sorted(set(row)) for row in rows]
    offsets = np.cumsum([0, *map(len, rows)])
    values = np.array([value for row in rows for value in row], np.uint32)
    counts = np.arange(1, len(values) + 1, dtype=np.uint32)
    right = np.array([counts[a:b].sum() for a, b in pairwise(offsets)])
    for lengths in (as_readonly(right.astype(np.uint32)), as_readonly(right.astype(np.uint32) + 1)):
        made = [(np.zeros(7, np.int64), np.zeros(7, np.int64)) for _ in range(2)]
        agree = [
            bool(form(offsets, values, counts, lengths, *room))
            for form, room in zip(
                (segment_checks._count_numpy, segment_checks._count), made, strict=True
            )
        ]
        assert agree[0] == agree[1]
        if agree[0]:
            assert np.array_equal(made[0], made[1])


Rows = list[dict[int, int]]
"""Values, and how often they occur."""

VALUES = st.integers(0, 40) | st.integers(0, 2**32 - 1)
ROWS = st.lists(
    st.dictionaries(VALUES, st.integers(1, 3) | st.integers(1, 2**31), max_size=40), max_size=5
)


def packed_rows(
    rows: Rows, block: int
) -> tuple[packed_postings.UnpackedPostings, packed_postings.PackedPostings]:
    pairs = [sorted(row.items()) for row in rows]
    offsets = np.cumsum([0, *map(len, rows)])
    values = np.array([value for row in pairs for value, _ in row], np.uint32)
    counts = np.array([count for row in pairs for _, count in row], np.uint32)
    arrays = map(as_readonly, (offsets, values, counts))
    words_of_rows, words = packed_postings.pack_postings(*arrays, block)
    starts = np.cumsum([0, *words_of_rows])
    words = as_readonly(np.append(words, [np.uint32(0)] * packed_postings.SPARE_WORDS))
    return (
        packed_postings.UnpackedPostings(offsets, values, counts),
        packed_postings.PackedPostings(np.diff(offsets), starts, words, block),
    )


@given(ROWS, st.sampled_from([1, 3, 16, 128]))
def test_packed_rows_are_unpacked_by_both_forms(rows: Rows, block: int) -> None:
    expected, form = packed_rows(rows, block)
    starts, sizes = form.starts[:-1], form.sizes
    by_numpy = packed_postings.unpack_postings_numpy(starts, sizes, form.words, block)
    values, counts = (np.empty(len(expected.ids), np.uint32) for _ in range(2))
    packed_postings.unpack_postings(starts, expected.offsets, form.words, block, values, counts)
    for name, array in expected._asdict().items():
        assert np.array_equal(getattr(by_numpy, name), array)
    assert np.array_equal(values, expected.ids) and np.array_equal(counts, expected.tfs)
    largest = int(expected.ids.max(initial=0))
    for limit in (largest, largest + 1):
        holds = bool(
            packed_postings.postings_are_valid(form.starts, sizes, form.words, block, limit)
        )
        assert holds == packed_postings.postings_are_valid_numpy(
            form.starts, sizes, form.words, block, limit
        )
        assert holds == (largest < limit or not len(expected.ids))


@given(
    st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 70), min_size=2, max_size=12),
    st.lists(st.integers(0, 40), max_size=4),
    st.data(),
)
def test_both_forms_refuse_the_same_bits(
    words: list[int], sizes: list[int], data: st.DataObject
) -> None:
    """Any bits, which neither form reads beyond: compiled code would not say so, numpy does."""
    ends = st.lists(
        st.integers(0, len(words) - packed_postings.SPARE_WORDS),
        min_size=len(sizes),
        max_size=len(sizes),
    )
    starts = np.array([0, *sorted(data.draw(ends))])
    stored = as_readonly(np.array(words, np.uint32))
    for block in (4, 16):
        for limit in (3, 1000, 2**32 - 1):
            arguments = starts, np.array(sizes, np.int64), stored, block, limit
            assert packed_postings.postings_are_valid_numpy(*arguments) == bool(
                packed_postings.postings_are_valid(*arguments)
            )


def test_one_query_loads_no_compiled_code_and_many_do(tmp_path: Path) -> None:
    Index.build(some_docs(300), tmp_path / "my.index")
    code = f"""
import sys
from glassrank import Index, Query
from glassrank.backends import compiled
index = Index({str(tmp_path / "my.index")!r})
assert index.search("cat dog").hits
assert "numba" not in sys.modules
compiled.LOADING = 10_000
for _ in range(50):
    index.search("cat dog")
assert "numba" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_who_is_about_to_do_much_can_say_so() -> None:
    use_compiled_code()
    assert is_worth_compiling(0)
