"""Indexes on other paths than this machine's: memory, and an S3 server on loopback."""

import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fsspec
import pytest
from sharded_index import QUERIES, build_in_segments, run_bytes, some_docs

from glassrank.cluster import LocalShards, ShardedIndex, ShardedPipeline, mirror
from glassrank.cluster.mirror import Mirror, publish
from glassrank.embeddings import encode_index
from glassrank.errors import CorruptError, InputError
from glassrank.index import Index
from glassrank.rerank import Pipeline, Reranker
from glassrank.types import Doc

sys.path.append(str(Path(__file__).parents[1]))
from packages_apart import run_beside

DOCS = some_docs(200, seed=5)


@pytest.fixture(scope="module")
def fast() -> Reranker:
    return Reranker.load("fast")


@pytest.fixture
def index(tmp_path: Path, fast: Reranker, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv(mirror.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(mirror, "RANGE_BYTES", 1000)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    index = build_in_segments(DOCS, tmp_path / "my.index", 3)
    encode_index(index, fast.saved)
    return index


@pytest.fixture
def url() -> Iterator[str]:
    yield "memory://bucket/my.index"
    fsspec.filesystem("memory").rm("/", recursive=True)


def same_answers(index: Index, url: str, fast: Reranker, tmp_path: Path) -> None:
    sharded = ShardedIndex(url, LocalShards(3, [fast]))
    expected = run_bytes(index.retrieve(QUERIES, 50, "bm25+rm3"), tmp_path)
    assert run_bytes(sharded.retrieve(QUERIES, 50, "bm25+rm3"), tmp_path) == expected
    one = Pipeline(index, fast, calibrate=False)
    several = ShardedPipeline(sharded, fast, calibrate=False)
    ranking = several(QUERIES[4].text)
    assert ranking.hits == one(QUERIES[4].text).hits
    assert ranking.num_encoded == 0  # words come from the store


def test_an_index_in_memory_answers_as_one_on_a_disk(
    index: Index, url: str, fast: Reranker, tmp_path: Path
) -> None:
    publish(index.path, url)
    same_answers(index, url, fast, tmp_path)
    index.add([Doc("new", "ban ben")])
    encode_index(index, fast.saved)
    publish(index.path, url)
    same_answers(index, url, fast, tmp_path)


def test_shards_copy_what_is_theirs_by_ranges_and_once(
    index: Index, url: str, fast: Reranker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(index.path, url)
    asked: list[tuple[str, int]] = []
    kind = type(fsspec.filesystem("memory"))
    cat = kind.cat_file

    def counting(self: Any, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        content = cat(self, path, start, end, **more)
        asked.append((path, len(content)))
        return content

    monkeypatch.setattr(kind, "cat_file", counting)
    sharded = ShardedIndex(url, LocalShards(3, [fast]))
    sharded.prepare()
    arrays = [size for path, size in asked if path.endswith(".npy")]
    assert max(arrays) == 1000
    copies = sorted(p.name for p in next((tmp_path / "cache/copies").iterdir()).iterdir())
    segments = sorted(record.name for record in index.snapshot.records)
    assert copies == sorted([*segments, "whole"])
    for name in segments:
        there = next((tmp_path / "cache/copies").iterdir()) / name
        assert [p.name for p in there.glob("segment-*")] == [name]
        assert all(p.name.startswith(name) for p in there.glob("stores/*/segment-*"))
    asked.clear()
    ShardedIndex(url, LocalShards(3, [fast])).prepare()
    assert not [path for path, _ in asked if path.endswith(".npy")]


@pytest.mark.tried("Cluster", "a copy from elsewhere is stopped in the middle of a file",
                   "goes on from there", tries=3)  # fmt: skip
def test_a_stopped_copy_goes_on(index: Index, url: str) -> None:
    publish(index.path, url)
    copied = Mirror(url).whole()
    for number, file in enumerate(sorted(copied.glob("segment-*/texts.data.npy"))):
        content = file.read_bytes()
        file.write_bytes(content[: 500 * number])
        Mirror(url).whole()
        assert file.read_bytes() == content


@pytest.mark.tried("Cluster", "a byte flipped on an object store", "refused, the file named")
def test_damage_is_found_and_named(index: Index, url: str) -> None:
    publish(index.path, url)
    files = fsspec.filesystem("memory")
    place = f"/bucket/my.index/{index.snapshot.records[1].name}/texts.data.npy"
    content = bytearray(files.cat_file(place))
    content[-1] ^= 1
    files.pipe_file(place, bytes(content))
    with pytest.raises(CorruptError, match=r"texts\.data\.npy is damaged"):
        Mirror(url).whole()
    with pytest.raises(InputError, match="is not an index"):
        Mirror("memory://nothing").whole()


@pytest.mark.slow
def test_packages_for_s3_in_a_folder_of_their_own(tmp_path: Path) -> None:
    """A stand-in for S3 has pins that do not go with ours: the next test, where they are found."""
    if find_spec("s3fs") is not None:
        pytest.skip("they are installed: the next test finds them")
    packages = ["moto[server]", f"s3fs=={fsspec.__version__}"]
    test = f"{__file__}::test_an_index_on_s3"
    assert "1 passed" in run_beside(packages, tmp_path, "-m", "slow", test)


@pytest.mark.slow
def test_an_index_on_s3(
    index: Index, fast: Reranker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server._port = free.getsockname()[1]
    server.start()
    try:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server._port}")
        fsspec.filesystem("s3").mkdir("bucket")
        publish(index.path, "s3://bucket/my.index")
        same_answers(index, "s3://bucket/my.index", fast, tmp_path)
    finally:
        server.stop()
