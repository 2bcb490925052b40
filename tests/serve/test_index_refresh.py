"""A changed index is picked up while requests go on, and none of them fails."""

import gc
import shutil
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from small_service import in_process, make_folders, tiny_knrm, tiny_tk
from starlette.testclient import TestClient

from glassrank.embeddings import encode_index, store_folder
from glassrank.embeddings.doc_encoder import DocEncoder
from glassrank.embeddings.writer import open_store_writer
from glassrank.errors import GlassrankError
from glassrank.index import Index
from glassrank.serve import Options
from glassrank.serve.loaded import IndexReloader
from glassrank.types import Doc


@pytest.fixture
def own(tmp_path: Path) -> Options:
    return make_folders(tmp_path)


def wait_until(true: Callable[[], object]) -> None:
    give_up = time.monotonic() + 300
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.tried(
    "Service", "changes of the index while requests go on", "taken up, no request failed", tries=3
)
def test_no_request_is_dropped(own: Options) -> None:
    writer, saved = Index(own.index), tiny_tk()
    stop = threading.Event()
    failed: list[str] = []
    generations: set[int] = set()

    def keep_asking(client: TestClient) -> None:
        while not stop.is_set():
            answer = client.post("/search", json={"query": "the cat sat", "k": 50})
            if answer.status_code != 200:
                failed.append(answer.text)
                return
            found = answer.json()
            generations.add(found["generation"])
            if len(found["hits"]) != min(50, 40 + 2 * (found["generation"] - 1)):
                failed.append(f"{found['generation']}: {len(found['hits'])} hits")

    with in_process(own) as client:
        threads = [threading.Thread(target=keep_asking, args=(client,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for change in range(3):
                new = [Doc(f"new{change}{n}", "the cat sat on a warm mat") for n in range(2)]
                writer.add(new)
                encode_index(writer, saved, dtype="float16")
                at = writer.generation
                wait_until(lambda at=at: client.get("/info").json()["index"]["generation"] == at)
                wait_until(lambda at=at: at in generations)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failed
        assert generations >= {1, 4}
        assert client.get("/doc", params={"id": "new20"}).is_success


@pytest.mark.tried(
    "Service",
    "an index that vanishes, is built again, or cannot be read for a moment",
    "served on, then taken up",
)
def test_an_index_that_was_built_again_is_noticed(own: Options) -> None:
    """It has generation 1, as the one before it had."""
    with in_process(replace(own, models=())) as client:
        assert client.get("/doc", params={"id": "d1"}).is_success
        shutil.rmtree(own.index)
        Index.build([Doc("other", "the cat sat")], own.index)
        wait_until(lambda: client.get("/doc", params={"id": "other"}).is_success)
        assert client.get("/doc", params={"id": "d1"}).status_code == 404
        assert client.get("/info").json()["index"]["generation"] == 1


def test_documents_that_are_not_encoded_yet_are_encoded_live(
    own: Options, caplog: pytest.LogCaptureFixture
) -> None:
    writer, saved = Index(own.index), tiny_tk()

    def found(client: TestClient) -> dict:
        answer: dict = client.post("/search", json={"query": "the cat sat", "k": 50}).json()
        return answer

    with in_process(own) as client:
        assert found(client)["num_encoded"] == 0
        writer.add([Doc("new", "the cat sat")])
        wait_until(lambda: client.get("/doc", params={"id": "new"}).is_success)
        answer = found(client)
        assert answer["num_encoded"] == 1 and not answer["cut_short"]
        assert "new" in {hit["doc_id"] for hit in answer["hits"] if hit["reranked"]}
        assert caplog.text.count("lacks 1 documents, which take longer to rank") == 1
        encode_index(writer, saved, dtype="float16")
        wait_until(lambda: found(client)["num_encoded"] == 0)
        assert not client.get("/info").json()["index"]["behind"]


def test_a_deletion_needs_no_encoding(own: Options) -> None:
    with in_process(own) as client:
        assert client.get("/doc", params={"id": "d0"}).is_success
        Index(own.index).delete(["d0"])
        wait_until(lambda: client.get("/doc", params={"id": "d0"}).status_code == 404)
        assert len(client.post("/search", json={"query": "cat", "k": 50}).json()["hits"]) == 39


def test_a_new_store_is_taken_up(own: Options) -> None:
    with in_process(own) as client:
        assert client.get("/info").json()["models"][1]["stored"] is None
        encode_index(Index(own.index), tiny_knrm())
        wait_until(lambda: client.get("/info").json()["models"][1]["stored"])
        assert not client.get("/info").json()["encoding"], "nobody has said that it would come"


def test_what_is_in_the_making_is_told_and_no_warning(
    own: Options, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(own.index / "stores")
    index = Index(own.index)
    with in_process(replace(own, reports_pending=True)) as client:
        assert client.get("/info").json()["encoding"]
        assert client.post("/search", json={"query": "cat"}).json()["depth"] > 0
        begun = DocEncoder(tiny_tk(), "float16", "cpu", "s2", "").layout
        with open_store_writer(store_folder(own.index, begun.name), begun, index.snapshot):
            wait_until(lambda: client.get("/info").json()["models"][0]["stored"])
        assert client.get("/info").json()["encoding"], "a store that was begun has no documents yet"
        for saved in (tiny_tk(), tiny_knrm()):
            encode_index(index, saved, dtype="float16")
        wait_until(lambda: not client.get("/info").json()["encoding"])
        assert client.post("/search", json={"query": "cat"}).json()["num_encoded"] == 0
    assert "lacks" not in caplog.text


@pytest.mark.tried(
    "Service",
    "an index that vanishes, is built again, or cannot be read for a moment",
    "served on, then taken up",
)
def test_an_index_that_vanishes_is_served_on(
    own: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with in_process(own) as client:
        own.index.rename(tmp_path / "elsewhere")
        wait_until(lambda: client.get("/info").json()["index"]["behind"])
        assert client.post("/search", json={"query": "cat"}).json()["hits"]
        assert "is not an index" in caplog.text
        (tmp_path / "elsewhere").rename(own.index)
        wait_until(lambda: not client.get("/info").json()["index"]["behind"])


@pytest.mark.tried(
    "Service",
    "an index that vanishes, is built again, or cannot be read for a moment",
    "served on, then taken up",
)
def test_an_index_that_was_built_again_is_taken_up(own: Options, tmp_path: Path) -> None:
    """Its changes are counted from 1 again, and there is no store that could tell."""
    path = tmp_path / "built"
    Index.build([Doc("old", "the cat sat"), Doc("kept", "a cat")], path)
    with in_process(replace(own, index=path, models=())) as client:
        assert client.get("/doc", params={"id": "old"}).is_success
        shutil.rmtree(path)
        Index.build([Doc("kept", "a cat")], path)
        wait_until(lambda: client.get("/doc", params={"id": "old"}).status_code == 404)
        found = client.post("/search", json={"query": "cat"}).json()
        assert found["generation"] == 1
        assert [hit["doc_id"] for hit in found["hits"]] == ["kept"]


@pytest.mark.tried(
    "Service",
    "an index that vanishes, is built again, or cannot be read for a moment",
    "served on, then taken up",
)
def test_a_disk_that_fails_for_a_moment_is_tried_again(
    own: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    reloader = IndexReloader(replace(own, models=()))
    Index(own.index).delete(["d0"])
    with monkeypatch.context() as patched:
        patched.setattr("glassrank.storage.mapped_arrays.mmap.mmap", fails)
        assert not reloader.refresh()
        assert "Input/output error" in reloader.behind
    assert reloader.refresh()
    assert not reloader.behind
    assert "d0" not in reloader.current.index


def test_what_is_not_served_any_more_is_closed_at_once(own: Options) -> None:
    """Its files would take room, and its arrays memory, until Python looked for cycles."""
    reloader = IndexReloader(own)
    writer, saved = Index(own.index), tiny_tk()
    gc.collect()
    gc.disable()
    try:
        for number in range(3):
            before = weakref.ref(reloader.current.index.snapshot)
            reloader.current.pipelines["tk"]("the cat sat")
            reloader.current.index.search("cat", method="ql+rm3")
            writer.add([Doc(f"new{number}", "the cat sat")])
            encode_index(writer, saved, dtype="float16")
            assert reloader.refresh()
            assert before() is None
    finally:
        gc.enable()


def test_a_worker_begins_when_the_index_can_be_read(
    own: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that takes the place of another, just when the index is moved."""
    own.index.rename(tmp_path / "elsewhere")
    with pytest.raises(GlassrankError, match="is not an index"):
        IndexReloader(own)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(IndexReloader, own, wait=True)
        wait_until(lambda: "a worker waits to begin" in caplog.text)
        (tmp_path / "elsewhere").rename(own.index)
        assert "d1" in waiting.result(30).current.index
    assert caplog.text.count("a worker waits to begin") == 1


def test_texts_are_ranked_warm_from_the_first_request_on(own: Options) -> None:
    for pipeline in IndexReloader(own).current.pipelines.values():
        assert all(stage.reranker.is_warm for stage in pipeline.stages)
