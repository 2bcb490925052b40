"""A store follows its index: what is new is encoded, what only moved is copied."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_store import assert_follows, small_saved, some_docs

from glassrank.embeddings import Progress, Store, encode_index, store_folder
from glassrank.embeddings import encode as encode_module
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.types import Doc

SAVED = small_saved("tk")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def ids(first: int, last: int) -> list[str]:
    return [f"d{i:03}" for i in range(first, last)]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.build(some_docs(1, ids(0, 40)), tmp_path / "index")


@pytest.fixture
def path(index: Index) -> Path:
    encode_index(index, SAVED, dtype="float32")
    return store_folder(index.path, "tk-float32")


def encode(index: Index) -> tuple[int, int]:
    """How many documents were encoded, and how many copied."""
    report = encode_index(index, SAVED, dtype="float32")
    assert report.documents == sum(len(segment) for segment in index.snapshot.segments)
    folders = {entry.name for entry in report.path.iterdir() if entry.is_dir()}
    assert len(folders) == len(index.snapshot.segments)
    return report.encoded, report.reused


def test_added_documents_alone_are_encoded(index: Index, path: Path) -> None:
    index.add(some_docs(2, ids(40, 45)))
    assert encode(index) == (5, 0)
    assert_follows(index, SAVED, path, **CLOSE)


def test_nothing_new_is_nothing_to_do(index: Index, path: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*.*") if file.suffix != ".lock"}
    assert encode(index) == (0, 0)
    assert before == {file: file.stat().st_mtime_ns for file in before}


def test_deletions_need_no_encoding(index: Index, path: Path) -> None:
    index.delete(ids(3, 9))
    assert_follows(index, SAVED, path, **CLOSE)
    assert encode(index) == (0, 0)


def test_replaced_documents_are_encoded_anew(index: Index, path: Path) -> None:
    index.add(some_docs(3, ids(10, 15)), replace=True)
    assert encode(index) == (5, 0)
    assert_follows(index, SAVED, path, **CLOSE)
    index.merge()
    assert encode(index) == (0, 40)
    assert_follows(index, SAVED, path, **CLOSE)


def test_a_merge_copies_rows_bit_for_bit(index: Index, path: Path) -> None:
    index.add(some_docs(2, ids(40, 45)))
    encode(index)
    before = rows_by_id(index, path)
    index.delete(ids(0, 3))
    index.merge()
    assert encode(index) == (0, 42)
    after = rows_by_id(index, path)
    assert after.keys() == before.keys() - set(ids(0, 3))
    for doc_id, rows in after.items():
        assert np.array_equal(rows, before[doc_id])


def rows_by_id(index: Index, path: Path) -> dict[str, np.ndarray]:
    store = Store.open(path, SAVED.model, index.snapshot)
    found = {}
    for segment in index.snapshot.segments:
        part = store.part(segment.record.name)
        ends = part.offsets[part.passages]
        for number, doc_id in enumerate(segment.ids):
            found[doc_id] = part.vectors[ends[number] : ends[number + 1]].copy()
    return found


def test_the_same_text_twice_is_copied_for_each(index: Index, path: Path) -> None:
    index.add([Doc("twin", index.doc("d001").text)])
    encode(index)
    index.merge()
    assert encode(index) == (0, 41)
    assert_follows(index, SAVED, path, **CLOSE)


def test_old_rows_are_there_until_every_new_segment_has_its_part(index: Index, path: Path) -> None:
    docs = some_docs(1, ids(0, 40))
    index = Index.build(docs[:32], index.path, overwrite=True)
    index.add(docs[32:])
    assert len(index.snapshot.segments) == 2

    def stop_in_the_second(progress: Progress) -> None:
        if progress.documents > 32:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_index(index, SAVED, dtype="float32", progress=stop_in_the_second)
    assert encode(index) == (0, 8)
    assert_follows(index, SAVED, path, **CLOSE)


def test_a_merge_of_documents_that_were_never_encoded(index: Index, path: Path) -> None:
    index.add(some_docs(4, ids(40, 60)))  # nearly as many: they join the first segment
    assert len(index.snapshot.segments) == 1
    assert encode(index) == (20, 40)
    assert_follows(index, SAVED, path, **CLOSE)


def test_a_damaged_old_part_is_not_copied_from(index: Index, path: Path) -> None:
    [vectors] = path.rglob("vectors.npy")
    content = bytearray(vectors.read_bytes())
    content[1000] ^= 1
    vectors.write_bytes(content)
    index.delete(["d000"])
    index.merge()
    assert encode(index) == (39, 0)
    assert_follows(index, SAVED, path, **CLOSE)


def test_an_index_built_over_another_keeps_its_stores(index: Index, path: Path) -> None:
    docs = [*some_docs(1, ids(0, 40))[:7], *some_docs(9, ids(40, 50))]
    index = Index.build(docs, index.path, overwrite=True)
    with pytest.raises(InputError, match="has not encoded all documents"):
        Store.open(path, SAVED.model, index.snapshot)
    assert encode(index) == (10, 7)
    assert_follows(index, SAVED, path, **CLOSE)


def test_a_segment_of_the_same_name_in_another_index_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names have a random part: that two are equal has to be brought about."""
    monkeypatch.setattr("glassrank.index.writer.secrets.token_hex", lambda size: "0" * 2 * size)
    index = Index.build(some_docs(1, ids(0, 40)), tmp_path / "index")
    path = encode_index(index, SAVED, dtype="float32").path
    other = Index.build(some_docs(8, ids(0, 40)), tmp_path / "other")
    assert other.snapshot.segments[0].record.name == index.snapshot.segments[0].record.name
    with pytest.raises(InputError, match="has not encoded all documents"):
        Store.open(path, SAVED.model, other.snapshot)
    encode_index(other, SAVED, path, "float32")
    assert_follows(other, SAVED, path, **CLOSE)


def test_an_index_that_was_built_again_is_another(index: Index, path: Path) -> None:
    """The same texts take no new work, but what belongs to them has to be said again."""
    docs = list(index.docs())
    stores = index.path / "stores"
    stores.rename(index.path.with_name("kept"))
    shutil.rmtree(index.path)
    again = Index.build(docs, index.path)
    index.path.with_name("kept").rename(stores)
    assert again.generation == 1
    with pytest.raises(InputError, match="has not encoded all documents"):
        Store.open(path, SAVED.model, again.snapshot)
    report = encode_index(again, SAVED, path, "float32")
    assert (report.encoded, report.reused) == (0, len(docs))
    assert_follows(again, SAVED, path, **CLOSE)


def test_a_title_is_part_of_what_is_read(tmp_path: Path) -> None:
    index = Index.build([Doc("a", "ant bee"), Doc("b", "ant bee", "fox")], tmp_path / "index")
    store = Store.open(encode_index(index, SAVED).path, SAVED.model, index.snapshot)
    assert store.part(index.snapshot.segments[0].record.name).offsets.tolist() == [0, 2, 5]


def test_what_is_not_covered_can_be_told_and_the_rest_read(index: Index, path: Path) -> None:
    store = Store.open(path, SAVED.model, index.snapshot)
    index.add(some_docs(2, ids(40, 45)))
    old, new = index.snapshot.segments
    assert store.covers(old)
    assert not store.covers(new)
    numbers = np.array([44, 3, 40, 7])
    with pytest.raises(
        InputError, match=rf"missing\); run: glassrank encode {index.path} --model MODEL"
    ):
        store.locate(index.snapshot, numbers)
    [located] = store.locate(index.snapshot, numbers[numbers < len(old)])
    assert located.which.tolist() == [0, 1]


def test_an_index_finds_the_store_of_a_model(index: Index) -> None:
    assert Store.find(index, SAVED.model) is None
    for dtype in ("float32", "int8", "bf16"):
        encode_index(index, SAVED, dtype=dtype)
        found = Store.find(index, SAVED.model)
        assert found is not None
        assert found.dtype == dtype
    assert Store.find(index, small_saved("tk", seed=9).model) is None
    index.add(some_docs(2, ids(40, 45)))
    found = Store.find(index, SAVED.model)
    assert found is not None
    assert (found.dtype, found.count_missing(index.snapshot)) == ("bf16", 5)
    encode_index(index, SAVED, dtype="int8")
    found = Store.find(index, SAVED.model)
    assert found is not None
    assert found.dtype == "int8"


def test_an_index_without_documents(index: Index, path: Path) -> None:
    index.delete(ids(0, 40))
    index.merge()
    assert encode(index) == (0, 0)
    assert (
        Store.open(path, SAVED.model, index.snapshot).locate(index.snapshot, np.empty(0, np.int64))
        == []
    )


changes = st.lists(
    st.tuples(st.sampled_from(["add", "replace", "delete", "merge", "encode"]), st.integers(0, 99)),
    max_size=8,
)


@settings(max_examples=15, deadline=None)
@given(changes=changes)
@pytest.mark.long
def test_any_changes(
    changes: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    index = Index.build(some_docs(0, ids(0, 12)), tmp_path_factory.mktemp("any") / "index")
    path = index.path / "stores" / "any"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_module, "BLOCK_DOCS", 5)
        for number, (kind, seed) in enumerate([*changes, ("encode", 0)], 1):
            there = sorted(doc.doc_id for doc in index.docs())
            if kind == "add":
                index.add(some_docs(seed, ids(20 * number, 20 * number + 1 + seed % 9)))
            elif kind == "replace":
                index.add(some_docs(seed, there[seed % 3 :: 3]), replace=True)
            elif kind == "delete" and len(there) > 1:
                index.delete(there[seed % len(there) : -1][:4])
            elif kind == "merge":
                index.merge()
            elif kind == "encode":
                encode_index(index, SAVED, path, "float32")
        assert_follows(index, SAVED, path, **CLOSE)
