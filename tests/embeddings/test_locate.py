"""Candidates by number to rows: the same as looking each one up."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_store import small_saved, some_docs

from glassrank.embeddings import Store, encode_index
from glassrank.errors import InputError
from glassrank.index import Index


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Segments of 50, 12 and 3 documents."""
    index = Index.build(
        some_docs(1, [f"a{i:02}" for i in range(50)]), tmp_path_factory.mktemp("locate") / "index"
    )
    index.add(some_docs(2, [f"b{i}" for i in range(12)]))
    index.add(some_docs(3, list("xyz")))
    assert [len(segment) for segment in index.snapshot.segments] == [50, 12, 3]
    return index


@pytest.fixture(scope="module")
def store(index: Index) -> Store:
    saved = small_saved("knrm")
    return Store.open(encode_index(index, saved).path, saved.model, index.snapshot)


@given(numbers=st.lists(st.integers(0, 64)))
def test_every_candidate_is_found_once(index: Index, store: Store, numbers: list[int]) -> None:
    snapshot = index.snapshot
    places = []
    for located in store.locate(snapshot, np.array(numbers, np.int64)):
        columns = (located.which, *located.part.passage_rows(located.first))
        for which, start, length in zip(*(column.tolist() for column in columns), strict=True):
            segment, local = snapshot.locate(numbers[which])
            part = store.part(segment.record.name)
            assert located.part is part
            first = part.passages[local]
            assert [start, start + length] == part.offsets[first : first + 2].tolist()
            places.append(which)
    assert sorted(places) == list(range(len(numbers)))


@pytest.mark.parametrize("number", [65, -1])
def test_a_number_that_no_document_has(index: Index, store: Store, number: int) -> None:
    with pytest.raises(IndexError):
        store.locate(index.snapshot, np.array([0, number]))


def test_a_part_that_is_not_there(store: Store) -> None:
    with pytest.raises(InputError, match="has no part for 'segment-9'"):
        store.part("segment-9")


def test_arrays_are_mapped_and_cannot_be_changed(
    index: Index, store: Store, tmp_path: Path
) -> None:
    saved = small_saved("tk")
    vectors = Store.open(encode_index(index, saved, tmp_path / "s").path, saved.model)
    for part in (
        store.part(index.snapshot.segments[0].record.name),
        vectors.part(index.snapshot.segments[0].record.name),
    ):
        assert not part.vectors.flags.writeable
        assert part.vectors.flags.c_contiguous
