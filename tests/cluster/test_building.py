"""Shards are built and encoded by tasks: stopped anywhere, the work goes on, and nothing is there
twice. Here tasks run in this process; `test_cluster.py` has them on a cluster."""

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest
from sharded_index import QUERIES, run_bytes, some_docs

from glassrank.cluster.building import Encoding, build_shards, encode_shards
from glassrank.embeddings import Store, encode_index
from glassrank.errors import DuplicateIdError, InputError
from glassrank.index import Index
from glassrank.index.writer import IndexWriter
from glassrank.models.io.load import load_for_inference
from glassrank.types import Doc

DOCS = some_docs(300, seed=2)


class StoppedError(Exception):
    """As if the process that gives the tasks had been killed."""


def stops_after(tasks: int) -> Callable[..., Iterator[Any]]:
    def run(task: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        for number, result in enumerate(starmap(task, calls)):
            if number == tasks:
                raise StoppedError
            yield result

    return run


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Shards that are really built."""
    built: list[str] = []
    build = Index.build

    def counting(docs: Any, path: Path, **settings: Any) -> Index:
        built.append(Path(path).name)
        return build(docs, path, **settings)

    monkeypatch.setattr(Index, "build", counting)
    return built


def test_shards_make_the_index_that_one_machine_makes(tmp_path: Path) -> None:
    whole = Index.build(DOCS, tmp_path / "whole")
    index = build_shards(DOCS, tmp_path / "shards", 4, source="s")
    assert len(index.snapshot.segments) == 4
    assert sorted(index.docs(), key=lambda doc: doc.doc_id) == list(whole.docs())
    expected = run_bytes(whole.retrieve(QUERIES, 50), tmp_path)
    assert run_bytes(index.retrieve(QUERIES, 50), tmp_path) == expected
    assert not (tmp_path / "shards.building").exists()
    Index(tmp_path / "shards")  # every byte is as the manifest says
    with pytest.raises(InputError, match="is an index already"):
        build_shards(DOCS, tmp_path / "shards", 4, source="s")


@pytest.mark.tried("Cluster", "who gives the tasks of an index stops between them",
                   "goes on with those that are left", tries=4)  # fmt: skip
def test_finished_shards_are_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = counted(monkeypatch)
    path = tmp_path / "my.index"
    for stop in range(4):
        with pytest.raises(StoppedError):
            build_shards(DOCS, path, 4, stops_after(stop), source="s")
        assert not path.exists()

    def nothing_to_read() -> Iterator[Doc]:
        raise AssertionError("documents are read once")
        yield

    build_shards(nothing_to_read(), path, 4, source="s")
    assert sorted(built) == [f"shard-{number}" for number in range(4)]
    assert len(Index(path)) == len(DOCS)


def test_other_documents_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "my.index"
    with pytest.raises(StoppedError):
        build_shards(DOCS, path, 3, stops_after(2), source="before")
    assert len(build_shards(DOCS[:100], path, 3, source="after")) == 100


@pytest.mark.tried("Cluster", "stopped while an index takes its shards over",
                   "what is lost is built again", tries=3)  # fmt: skip
def test_stopped_while_shards_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my.index"
    for after in range(3):
        adopt, left = IndexWriter.adopt, iter(range(after))

        def stopping(*taken: Any, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise StoppedError
            adopt(*taken)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(IndexWriter, "adopt", stopping)
            with pytest.raises(StoppedError):
                build_shards(DOCS, path, 3, source="s")
    index = build_shards(DOCS, path, 3, source="s")
    assert sorted(doc.doc_id for doc in index.docs()) == sorted(doc.doc_id for doc in DOCS)


def test_an_id_that_comes_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(DuplicateIdError, match=DOCS[7].doc_id):
        build_shards([*DOCS, DOCS[7]], tmp_path / "my.index", 4, source="s")
    assert not (tmp_path / "my.index").exists()


@pytest.mark.tried("Cluster", "who gives the tasks of a store stops between them",
                   "goes on with those that are left", tries=2)  # fmt: skip
def test_a_store_in_parts_is_the_one_that_one_machine_makes(tmp_path: Path) -> None:
    saved = load_for_inference("fast")
    index = build_shards(DOCS, tmp_path / "my.index", 3, source="s")
    alone = encode_index(index, saved, tmp_path / "alone")
    for _ in range(2):
        with pytest.raises(StoppedError):
            encode_shards(index, saved, Encoding("fast"), stops_after(1))
    report = encode_shards(index, saved, Encoding("fast"))
    assert (report.documents, report.words) == (alone.documents, alone.words)
    assert report.encoded < len(DOCS)  # what was there is not encoded again
    store = Store.find(index, saved.model)
    assert store is not None
    assert store.count_missing(index.snapshot) == 0
    for part in store.path.iterdir():
        for file in part.glob("*.npy"):
            assert file.read_bytes() == (tmp_path / "alone" / part.name / file.name).read_bytes()
