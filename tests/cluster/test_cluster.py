"""A Ray cluster of three nodes on this machine does what one machine does, to the last byte; and
when some of it dies, too, or the answer says what is missing."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest

from glassrank.cluster import ShardedIndex, ShardedPipeline
from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.models.io.load import load_for_inference
from glassrank.rerank import Reranker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="the package ray is not installed"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
NODE = {"num_cpus": 1, "object_store_memory": 200 << 20}
PASSAGES = 100_000


class Nodes:
    """A head and two others, of which any may die."""

    def __init__(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        from ray.cluster_utils import Cluster

        head = {**NODE, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._others = [self._cluster.add_node(**NODE) for _ in range(2)]
        self.address = self._cluster.address

    def kill(self) -> None:
        """One node, as a power cut would, with all that runs there."""
        self._cluster.remove_node(self._others.pop(0), allow_graceful=False)

    def replace(self) -> None:
        self._others.append(self._cluster.add_node(**NODE))

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    import ray

    nodes = Nodes()
    ray.init(nodes.address, log_to_driver=False)
    try:
        yield nodes
    finally:
        ray.shutdown()
        nodes.close()


def glassrank(*arguments: object) -> None:
    command = [sys.executable, "-m", "glassrank", *map(str, arguments), "--quiet"]
    subprocess.run(command, check=True, timeout=1500)


def write_docs(path: Path, count: int, seed: int = 1) -> list[str]:
    """Short passages of the model's own words, common ones more often; some come twice."""
    chance = Random(seed)
    words = [word for word in load_for_inference("fast").vocabulary if word.isalpha()][:8000]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    texts = [
        " ".join(chance.choices(words, weights, k=chance.randrange(6, 30))) for _ in range(count)
    ]
    with path.open("w") as file:
        for number, text in enumerate(texts):
            text = texts[number // 2] if number % 10 == 9 else text
            file.write(json.dumps({"id": f"p{number}", "text": text}) + "\n")
    return texts


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents, queries, and what one machine makes of them."""
    folder = tmp_path_factory.mktemp("cluster")
    texts = write_docs(folder / "docs.jsonl", PASSAGES)
    with (folder / "queries.tsv").open("w") as file:
        for number in range(40):
            words = texts[number * 37].split()[:4]
            file.write(f"q{number}\t{' '.join(words)}\n")
    one = folder / "one.index"
    glassrank("index", folder / "docs.jsonl", "--out", one)
    glassrank("encode", one, "--model", "fast")
    retrieve(folder, one, "one")
    rerank(folder, one, "one")
    return folder


def retrieve(work: Path, index: Path, name: str, *more: object) -> None:
    for method in ("bm25", "ql+rm3"):
        out = work / f"{name}.{method}.run"
        asked = ("--method", method, "--depth", 200, "--out", out)
        glassrank("retrieve", index, work / "queries.tsv", *asked, *more)


def rerank(work: Path, index: Path, name: str, *more: object) -> None:
    run, queries = work / "one.bm25.run", work / "queries.tsv"
    asked = ("--queries", queries, "--model", "fast", "--depth", 200)
    glassrank("rerank", run, "--index", index, *asked, "--out", work / f"{name}.run", *more)


def same(work: Path, name: str, other: str) -> bool:
    return (work / f"{name}.run").read_bytes() == (work / f"{other}.run").read_bytes()


def test_four_shards_of_a_hundred_thousand_passages_are_one_machines(
    nodes: Nodes, work: Path
) -> None:
    index, there = work / "shards.index", ("--ray", nodes.address)
    glassrank("index", work / "docs.jsonl", "--out", index, "--shards", 4, *there)
    assert len(Index(index).snapshot.segments) == 4
    assert len(Index(index)) == PASSAGES
    glassrank("encode", index, "--model", "fast", *there)
    for count in (4, 3):
        name = f"shards-{count}"
        retrieve(work, index, name, "--shards", count, *there)
        assert same(work, f"{name}.bm25", "one.bm25")
        assert same(work, f"{name}.ql+rm3", "one.ql+rm3")
        rerank(work, index, name, "--shards", count, *there)
        assert same(work, name, "one")


@pytest.fixture(scope="module")
def small(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """In four shards, without a store."""
    from glassrank.cluster.building import build_shards
    from glassrank.cluster.cluster import run_tasks
    from glassrank.corpus import read_docs

    folder = tmp_path_factory.mktemp("small")
    write_docs(folder / "docs.jsonl", 40_000, seed=2)
    docs = read_docs(str(folder / "docs.jsonl"))
    return build_shards(docs, folder / "small.index", 4, run_tasks, source="s")


def test_a_node_dies_in_the_middle_of_encoding(
    nodes: Nodes, small: Index, tmp_path: Path, reliability: Any
) -> None:
    from glassrank.cluster.building import Encoding, encode_shards
    from glassrank.cluster.cluster import run_tasks

    saved = load_for_inference("fast")
    killed: list[float] = []

    def kill_when_they_are_at_it() -> None:
        while len(list(small.path.glob("stores/*/segment-*/progress.json"))) < 3:
            time.sleep(0.02)
        nodes.kill()
        killed.append(time.monotonic())

    killer = threading.Thread(target=kill_when_they_are_at_it)
    killer.start()
    report = encode_shards(small, saved, Encoding("fast"), run_tasks)
    ended = time.monotonic()
    killer.join()
    nodes.replace()
    assert killed[0] < ended
    assert report.documents == len(small)
    encode_index(small, saved, tmp_path / "alone")
    compared = 0
    for part in (tmp_path / "alone").glob("segment-*"):
        for file in part.glob("*.npy"):
            assert file.read_bytes() == (report.path / part.name / file.name).read_bytes()
            compared += 1
    assert compared == 4 * 7
    reliability("Cluster", "a node dies in the middle of encoding", "the same store, to the byte")


def test_nodes_and_actors_die_in_the_middle_of_searching(
    nodes: Nodes, small: Index, reliability: Any, request: pytest.FixtureRequest
) -> None:
    import ray

    from glassrank.cluster.cluster import RayShards

    fast = Reranker.load("fast")
    queries = [
        " ".join(doc.text.split()[:4]) for doc, _ in zip(small.docs(), range(60), strict=False)
    ]
    shards = RayShards(4, ["fast"])
    request.addfinalizer(shards.close)  # or those who come after it wait for room
    search = ShardedPipeline(ShardedIndex(small.path, shards), fast, candidates=100)
    expected = [search(query).hits for query in queries]

    def all_the_same() -> bool:
        return [search(query).hits for query in queries] == expected

    killer = threading.Timer(0.3, nodes.kill)
    killer.start()
    assert all_the_same()
    killer.join()
    nodes.replace()
    assert all_the_same()
    # With a deadline nobody waits for a shard that begins again; it is named, and then back.
    missed = 0
    for actor in shards.actors:
        ray.kill(actor, no_restart=False)
        ranking = search(queries[0], budget_ms=500)
        assert ranking.hits == expected[0] or ranking.missing
        missed += bool(ranking.missing)
        assert set(ranking.missing) <= {view.name for view in search.index.views}
        assert search(queries[0]).hits == expected[0]
    assert missed
    result = "the same hits, or the shard that is missing is named"
    reliability("Cluster", "a node dies in the middle of searching", "the same hits")
    reliability("Cluster", "an actor dies before a search with a deadline", result, 4)


def test_a_killed_driver_goes_on_with_finished_shards(
    nodes: Nodes, tmp_path: Path, reliability: Any
) -> None:
    write_docs(tmp_path / "docs.jsonl", 40_000, seed=3)
    index, work = tmp_path / "my.index", tmp_path / "my.index.building"
    command = ["index", tmp_path / "docs.jsonl", "--out", index, "--ray", nodes.address]
    line = [sys.executable, "-m", "glassrank", *map(str, command), "--shards", "6", "--quiet"]
    driver = subprocess.Popen(line)
    give_up = time.monotonic() + 600
    while not (done := sorted(work.glob("shard-*/manifest.json"))):
        assert driver.poll() is None and time.monotonic() < give_up
        time.sleep(0.01)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert not index.exists()
    texts = [next(file.parent.glob("segment-*/texts.data.npy")).stat().st_ino for file in done]
    subprocess.run(line, check=True, timeout=600)
    assert len(Index(index)) == 40_000
    there = {file.stat().st_ino for file in index.glob("segment-*/texts.data.npy")}
    assert set(texts) <= there  # they were moved, not made again
    assert not work.exists()
    reliability("Cluster", "who gives the tasks is killed", "goes on with those that are left")
