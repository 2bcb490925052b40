"""Texts on disk are the lists they were, and take little memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_precomputed import collection

from glassrank.index import Index
from glassrank.research.train.prepare import prepare
from glassrank.research.train.texts import TextsOnDisk
from glassrank.research.train.training_texts import read_collections
from glassrank.types import Doc

words = st.text(st.characters(exclude_categories=["Z", "Cc", "Cs"]), min_size=1, max_size=5)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassrank.research.train.texts._BLOCK_BYTES", 20)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(words, max_size=6), max_size=12))
def test_what_was_appended_is_read(texts: list[list[str]]) -> None:
    kept = TextsOnDisk()
    for number, text in enumerate(texts, 1):
        kept.append(text)
        assert list(kept) == texts[:number]
    assert list(kept) == texts and len(kept) == len(texts)
    assert list(kept) == texts  # again, as each epoch reads them


def test_texts_take_a_tenth_of_what_lists_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassrank.research.train.texts._BLOCK_BYTES", 1 << 16)
    tracemalloc.start()
    kept = TextsOnDisk()
    for number in range(5000):
        kept.append([f"word{number}-{place}" for place in range(50)])
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [len(text) for text in kept] == [50] * 5000
    assert taken < 5000 * 50 * 128 / 10


def test_an_index_that_is_there_is_not_built_again(tmp_path: Path) -> None:
    config = collection(tmp_path, docs="my.index")
    lines = (tmp_path / "docs.tsv").read_text().splitlines()
    Index.build((Doc(*line.split("\t")) for line in lines), tmp_path / "my.index")
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "my.index").rglob("*"))
    from_index = prepare(config, read_collections(config, tmp_path), tmp_path)
    assert sorted(p.stat().st_mtime_ns for p in (tmp_path / "my.index").rglob("*")) == before
    other = collection(tmp_path)
    from_docs = prepare(other, read_collections(other, tmp_path), tmp_path)
    assert from_index.words == from_docs.words
    assert np.array_equal(from_index.docs.values, from_docs.docs.values)
    assert np.array_equal(from_index.dev.first_stage, from_docs.dev.first_stage)
