"""Stores of documents in passages: read again, killed, from another version, and smaller ones."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_store import ANIMALS, QUERIES, assert_follows, small_saved, some_docs

from glassrank.embeddings import Estimate, Store, encode_index
from glassrank.embeddings import encode as encode_module
from glassrank.errors import CorruptError, InputError
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker
from glassrank.storage.checksummed_json import write_json
from glassrank.storage.folders import Folder
from glassrank.types import Doc

SAVED = small_saved("tk")


def long_docs(count: int, longest: int = 150) -> list[Doc]:
    chance = np.random.default_rng(4)
    return [
        Doc(f"l{n:02}", " ".join(chance.choice(ANIMALS, 1 + n * longest // count)), "fox" * (n % 2))
        for n in range(count)
    ]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.build([*some_docs(1, list("abcdef")), *long_docs(20)], tmp_path / "index")


@pytest.mark.parametrize("block", [1, 7, 2048])
def test_added_deleted_and_merged(
    index: Index, tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode_module, "BLOCK_DOCS", block)
    path = encode_index(index, SAVED, tmp_path / "store", "float32").path
    assert_follows(index, SAVED, path, rtol=1e-4, atol=1e-5)
    index.add([Doc("new", "gnu hen " * 40), Doc("l03", "ant " * 60)], replace=True)
    index.delete(["a", "l05"])
    report = encode_index(index, SAVED, path, "float32")
    assert (report.encoded, report.reused) == (2, 0)
    index.merge()
    report = encode_index(index, SAVED, path, "float32")
    assert (report.encoded, report.reused) == (0, len(index))
    assert_follows(index, SAVED, path, rtol=1e-4, atol=1e-5)


def test_a_long_document_is_a_block_by_itself(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by passages, not by documents."""
    sizes = []
    original = encode_module._encode_block

    def noted(docs, *given):  # type: ignore[no-untyped-def]
        sizes.append(sum(len(doc.text) for doc in docs))
        return original(docs, *given)

    monkeypatch.setattr(encode_module, "_encode_block", noted)
    monkeypatch.setattr(encode_module, "BLOCK_DOCS", 8)
    encode_index(index, SAVED, tmp_path / "store")
    longest = max(len(doc.text) for doc in index.docs())
    assert max(sizes) <= longest + 8 * 12 * 14


def test_a_store_of_another_version_is_refused(index: Index) -> None:
    path = encode_index(index, SAVED).path
    body = json.loads((path / "store.json").read_text())["body"]
    body["format"] = 1
    with Folder.open(path) as folder:
        write_json(folder, "store.json", body)
    with pytest.raises(InputError, match=r"has store format 1, .* run glassrank encode again") as e:
        Pipeline(index, Reranker(SAVED))
    assert "\n" not in str(e.value)
    with pytest.raises(InputError, match="has store format 1"):
        encode_index(index, SAVED, path)


@pytest.mark.parametrize("name", ["passages", "spans", "cut", "offsets"])
def test_places_that_no_encoder_writes(index: Index, tmp_path: Path, name: str) -> None:
    """With checksums that fit: what compiled code relies on is looked at all the same."""
    path = encode_index(index, SAVED, tmp_path / "store").path
    store = Store.open(path, SAVED.model)
    file = store.part(index.snapshot.segments[0].record.name).folder / f"{name}.npy"
    values = np.load(file)
    values[1:] = -1 if name == "spans" else values[1:][::-1]
    if name == "cut":
        values = values[:-1]
    np.save(file, values)
    with pytest.raises(CorruptError):
        Store.open(path, SAVED.model, verify=False)


def test_the_size_is_told_before_the_work_begins(index: Index, tmp_path: Path) -> None:
    told: list[Estimate] = []
    report = encode_index(index, SAVED, tmp_path / "store", begins=told.append)
    (estimate,) = told
    assert (estimate.documents, estimate.passages) == (report.documents, report.passages)
    assert estimate.bytes == pytest.approx(report.bytes, rel=0.1)
    assert report.dtype == estimate.dtype == "int8"
    encode_index(index, SAVED, tmp_path / "store", begins=told.append)
    assert len(told) == 1


def test_words_left_out_have_no_rows_stored_and_live(tmp_path: Path) -> None:
    docs = [Doc(d.doc_id, d.text.replace(" ", " , ")) for d in long_docs(12, 60)]
    index = Index.build(docs, tmp_path / "index")
    saved = small_saved("tk")
    saved = type(saved)(saved.model, saved.usage, [*saved.vocabulary[:-1], ","])
    whole = encode_index(index, saved, tmp_path / "whole", "float32")
    report = encode_index(index, saved, tmp_path / "store", "float32", leave_out="punctuation")
    assert report.words < 0.6 * whole.words
    assert report.passages == whole.passages
    store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    pipeline = Pipeline(index, Reranker(saved, exact=True), store=store, calibrate=False)
    before = {hit.doc_id: hit.score for hit in pipeline(QUERIES[0], k=50)}
    index.add([Doc("copy", docs[7].text)])
    store = Store.open(tmp_path / "store", saved.model)
    pipeline = Pipeline(index, Reranker(saved, exact=True), store=store, calibrate=False)
    ranking = pipeline(QUERIES[0], k=50)
    assert ranking.num_encoded == 1
    after = {hit.doc_id: hit.score for hit in ranking}
    assert after["copy"] == pytest.approx(before[docs[7].doc_id], rel=1e-4)


def test_what_cannot_be_left_out_is_said(index: Index, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="what is left out is punctuation or function-words, not"):
        encode_index(index, SAVED, tmp_path / "store", leave_out="verbs")
    with pytest.raises(InputError, match="a pacrr cannot do without some words"):
        encode_index(index, small_saved("pacrr"), tmp_path / "store", leave_out="punctuation")
    assert not (tmp_path / "store").exists()


def test_a_store_with_all_words_is_preferred(index: Index) -> None:
    encode_index(index, SAVED, leave_out="punctuation")
    assert Store.find(index, SAVED.model).layout.left_out == "punctuation"  # type: ignore[union-attr]
    encode_index(index, SAVED)
    assert Store.find(index, SAVED.model).layout.left_out == ""  # type: ignore[union-attr]
