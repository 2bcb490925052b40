"""What an index refuses, what it keeps, and who sees a change when."""

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from index_files import contents, leftovers

from glassrank.corpus import read_docs
from glassrank.errors import DuplicateIdError, GlassrankError, InputError
from glassrank.index import Index
from glassrank.index.snapshot import Manifest, write_manifest
from glassrank.storage.folders import Folder
from glassrank.types import Doc

CATS = [Doc("c1", "Cats purr."), Doc("c2", "A cat on a mat."), Doc("d1", "Dogs bark.")]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.build(CATS, tmp_path / "index")


def test_everything_of_a_document_comes_back(tmp_path: Path) -> None:
    doc = Doc("ä/1 ", "Tëxt\n\twith \0 all 😀", "A title", "docs.tsv", {"n": 1.5, "l": [None]})
    index = Index.build([doc], tmp_path / "index")
    assert index.doc("ä/1 ") == doc
    assert list(index.docs()) == [doc]
    assert "ä/1 " in index


def test_titles_are_searched_too(tmp_path: Path) -> None:
    index = Index.build([Doc("a", "body", "Zebra crossing"), *CATS], tmp_path / "index")
    assert [hit.doc_id for hit in index.search("zebras")] == ["a"]


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_k_is_a_positive_integer(index: Index, k: int) -> None:
    with pytest.raises(InputError, match=f"k must be a positive integer, not {k}"):
        index.search("cat", k)


def test_an_unknown_document_is_named(index: Index) -> None:
    assert "nobody" not in index
    assert 7 not in index
    with pytest.raises(InputError, match="has the id 'nobody'"):
        index.doc("nobody")


def test_an_empty_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty id"):
        Index.build([Doc("", "text")], tmp_path / "index")


def test_metadata_that_is_not_json_is_refused_by_document(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="metadata of document 'a' cannot be stored as JSON"):
        Index.build([Doc("a", "b", metadata={"day": date(2000, 1, 1)})], tmp_path / "index")


@pytest.mark.parametrize("k", [0, -1])
def test_at_least_one_result_must_be_asked_for(index: Index, k: int) -> None:
    with pytest.raises(InputError, match=f"not {k}"):
        index.search("cat", k)


# Duplicates


def test_a_duplicate_within_an_addition_leaves_the_index_as_it_was(index: Index) -> None:
    before = contents(index.path)
    with pytest.raises(DuplicateIdError, match="document id 'x' appears twice"):
        index.add([Doc("x", "1"), Doc("y", "2"), Doc("x", "3")], replace=True)
    assert contents(index.path) == before


def test_a_duplicate_of_an_indexed_document_leaves_the_index_as_it_was(index: Index) -> None:
    before = contents(index.path)
    with pytest.raises(DuplicateIdError, match="id 'c1' is in the index already; use --replace"):
        index.add([Doc("new", "1"), Doc("c1", "2")])
    assert contents(index.path) == before


def test_a_duplicate_in_a_file_is_named_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("a\tone\nb\ttwo\na\tthree\n")
    with pytest.raises(DuplicateIdError, match=r"docs\.tsv:3 \(first at .*docs\.tsv:1\): .*'a'"):
        Index.build(read_docs(tmp_path / "docs.tsv"), tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_an_indexed_duplicate_in_a_file_is_named_by_file_and_line(
    index: Index, tmp_path: Path
) -> None:
    (tmp_path / "docs.tsv").write_text("a\tone\nc2\ttwo\n")
    with pytest.raises(DuplicateIdError, match=r"docs\.tsv:2: document id 'c2'"):
        index.add(read_docs(tmp_path / "docs.tsv"))


# Building


def test_an_existing_index_is_not_built_over(index: Index) -> None:
    before = contents(index.path)
    with pytest.raises(InputError, match="is an index already"):
        Index.build([Doc("x", "y")], index.path)
    assert contents(index.path) == before


def test_an_existing_index_is_overwritten_on_demand(index: Index) -> None:
    """Even with documents of its own: they stay until the new ones are written."""
    generation = index.generation
    again = Index.build(
        (doc for doc in index.docs() if "cat" in doc.text), index.path, overwrite=True
    )
    assert [doc.doc_id for doc in again.docs()] == ["c2"]
    assert again.generation > generation
    assert len(list(index.path.glob("segment-*"))) == 1


@pytest.mark.parametrize("damage", ["manifest.json", "ids.data.npy"])
def test_a_damaged_index_can_be_overwritten(index: Index, damage: str) -> None:
    (path,) = index.path.rglob(damage)
    path.write_bytes(b"?")
    again = Index.build(CATS, index.path, overwrite=True)
    assert len(Index(again.path)) == len(CATS)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_not_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "letter.txt").write_text("Dear Ada")
    before = contents(tmp_path)
    with pytest.raises(InputError, match="is not an index"):
        Index.build(CATS, tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == before


def test_a_file_is_not_built_over(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("Dear Ada")
    with pytest.raises(InputError, match="is not an index"):
        Index.build(CATS, tmp_path / "index", overwrite=True)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("Dear Ada")
    with pytest.raises(GlassrankError, match=r"cannot write the index .*: Not a directory"):
        Index.build(CATS, tmp_path / "file" / "index")


def test_an_empty_folder_may_become_an_index(tmp_path: Path) -> None:
    assert len(Index.build(CATS, tmp_path)) == len(CATS)


def test_nothing_is_no_index_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no documents to index"):
        Index.build([], tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_build_leaves_nothing(
    tmp_path: Path, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassrank.index.writer.SEGMENT_BYTES", 1)  # some are on disk by then

    def interrupted() -> Iterator[Doc]:
        yield from CATS
        raise error

    with pytest.raises(error):
        Index.build(interrupted(), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_addition_changes_nothing(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassrank.index.writer.SEGMENT_BYTES", 1)
    before = contents(index.path)

    def interrupted() -> Iterator[Doc]:
        yield Doc("c1", "replaced")
        yield Doc("new", "added")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.add(interrupted(), replace=True)
    assert contents(index.path) == before


@pytest.mark.parametrize("moment", ["os.fsync", "Folder.sync"])
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_commit_that_fails_before_or_after_its_rename_leaves_a_whole_index(
    index: Index, monkeypatch: pytest.MonkeyPatch, moment: str, error: BaseException
) -> None:
    def fails(_: object) -> None:
        raise error

    def commit(folder: Folder, manifest: Manifest) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(f"glassrank.storage.folders.{moment}", fails)
            write_manifest(folder, manifest)

    monkeypatch.setattr("glassrank.index.writer.write_manifest", commit)
    committed = moment == "Folder.sync"
    with pytest.raises((GlassrankError, KeyboardInterrupt)) as raised:
        index.add([Doc("c1", "replaced"), *(Doc(f"n{i}", "new") for i in range(9))], replace=True)
    if isinstance(error, OSError):
        said = "it is made, but a power cut may undo it" if committed else "is as it was before"
        assert said in str(raised.value)
    again = Index(index.path)
    assert again.doc("c1").text == ("replaced" if committed else "Cats purr.")
    assert len(again) == len(CATS) + 9 * committed
    assert not leftovers(index.path)


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_what_is_not_an_index_is_not_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("Dear Ada")
    with pytest.raises(InputError, match=f"{name} is not an index"):
        Index(tmp_path / name)


def test_another_analyzer_is_refused(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassrank.text.EnglishAnalyzer.name", "other-1")
    with pytest.raises(InputError, match="'lucene-english-1', this version has 'other-1'"):
        Index(index.path)


# Readers


def test_another_reader_sees_a_change_when_it_refreshes(index: Index) -> None:
    reader = Index(index.path)
    index.add([Doc("c3", "cat cat cat")])
    index.delete(["c1"])
    index.merge()
    # The files of the old state are gone by now, the state itself is not.
    assert [hit.doc_id for hit in reader.search("cat")] == ["c1", "c2"]
    assert reader.doc("c1").text == "Cats purr."
    assert reader.refresh()
    assert [hit.doc_id for hit in reader.search("cat")] == ["c3", "c2"]
    assert not reader.refresh()


def test_a_snapshot_stays_as_it_was(index: Index) -> None:
    snapshot = index.snapshot
    index.delete(["c1", "c2"])
    assert [doc.doc_id for doc in snapshot.docs()] == ["c1", "c2", "d1"]
    assert [doc.doc_id for doc in index.docs()] == ["d1"]


def test_an_index_says_what_it_is(index: Index) -> None:
    assert repr(index) == f"Index({str(index.path)!r}: 3 documents)"


# Built again


def test_an_index_that_was_built_again_is_another(index: Index) -> None:
    """Even if its changes are counted from 1 again and its files have the same sizes."""
    reader = Index(index.path)
    names = {segment.record.name for segment in reader.snapshot.segments}
    shutil.rmtree(index.path)
    again = Index.build([*CATS[:2], Doc("d2", "Dogs bark.")], index.path)
    assert again.generation == reader.generation == 1
    assert again.state != reader.state
    assert reader.refresh()
    assert "d1" not in reader
    assert "d2" in reader
    assert not names & {segment.record.name for segment in reader.snapshot.segments}
    assert not reader.refresh()


def test_every_change_has_a_state_of_its_own(index: Index, tmp_path: Path) -> None:
    """Two copies that are changed in different ways have one generation."""
    copy = Index(shutil.copytree(index.path, tmp_path / "copy"))
    assert copy.state == index.state
    copy.delete(["c1"])
    index.delete(["c2"])
    assert copy.generation == index.generation
    assert copy.state != index.state


# Several changes in one


def test_several_changes_are_one_commit(index: Index) -> None:
    generation = index.generation
    done = index.change(delete=["c1"], add=[Doc("c1", "New."), Doc("n", "Newt.")], merge=True)
    assert done == (2, 1)
    assert index.generation == generation + 1
    assert {doc.doc_id: doc.text for doc in index.docs()}["c1"] == "New."
    assert len(index.snapshot.segments) == 1


def test_several_changes_are_all_refused_if_one_is(index: Index) -> None:
    before = contents(index.path)
    with pytest.raises(DuplicateIdError, match="'c2' is in the index already; use --replace"):
        index.change(delete=["c1"], add=[Doc("c2", "There already.")])
    with pytest.raises(InputError, match="no document has the id 'x'"):
        index.change(delete=["x"], add=[Doc("n", "Newt.")])
    assert contents(index.path) == before
