"""Readers and writers side by side: threads, processes, and one writer at a time."""

import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from changing_index import FIRST, assert_whole, some_docs
from child_processes import start

from glassrank.errors import GlassrankError
from glassrank.index import Index
from glassrank.types import Doc, Query

QUERIES = ["ant bee", "cat", "dog elk fox", "gnu gnu hen", "ant cat elk gnu", "yak"]
METHODS = ["bm25", "ql", "bm25+rm3", "ql+rm3"]

SEARCH = f"""
import json, sys
from glassrank.index import Index
index = Index(sys.argv[1])
print(json.dumps([index.search(q, 20, m).hits for q in sys.argv[2:] for m in {METHODS}]))
"""
HOLD_THE_LOCK = """
import sys
from pathlib import Path
from glassrank.index.writer import open_writer
with open_writer(Path(sys.argv[1])):
    print("writing", flush=True)
    sys.stdin.readline()
"""
CHANGE_FOREVER = """
import sys
from pathlib import Path
from changing_index import change
while True:
    change(Path(sys.argv[1]))
    print("changed", flush=True)
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    index = Index.build(
        some_docs(1, [str(i) for i in range(2000)]), tmp_path_factory.mktemp("m") / "i"
    )
    index.add(some_docs(2, [f"new-{i}" for i in range(300)]))
    index.delete([str(i) for i in range(0, 2000, 7)])
    assert len(index.snapshot.segments) == 2
    return index


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[str]"]]:
    """Ended and closed, whatever happens."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def rankings(index: Index) -> list[list[object]]:
    return [
        [json.loads(json.dumps(hit)) for hit in index.search(query, 20, method)]
        for query in QUERIES
        for method in METHODS
    ]


def test_eight_threads_find_what_one_finds(index: Index) -> None:
    expected = rankings(index)
    fresh = Index(index.path)  # nothing remembered yet: all threads begin at once
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: rankings(fresh), range(24)):
            assert found == expected


def test_threads_inside_one_call_change_nothing(index: Index) -> None:
    asked = [Query(str(i), QUERIES[i % len(QUERIES)]) for i in range(200)]
    one, many = (index.retrieve(asked, 50, "ql+rm3", threads) for threads in (1, 8))
    assert one.doc_ids == many.doc_ids
    assert one.scores.tolist() == many.scores.tolist()


def test_several_processes_find_what_one_finds(
    index: Index, processes: list["subprocess.Popen[str]"]
) -> None:
    processes += [start(SEARCH, "index", index.path, *QUERIES) for _ in range(3)]
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert json.loads(output) == rankings(index)


def test_a_second_writer_is_refused_while_readers_go_on(
    tmp_path: Path, processes: list["subprocess.Popen[str]"]
) -> None:
    index = Index.build(FIRST, tmp_path / "index")
    first = start(HOLD_THE_LOCK, "index", index.path)
    processes.append(first)
    assert first.stdout is not None
    assert first.stdout.readline() == "writing\n"
    for change in (
        lambda: index.add([Doc("x", "yak")]),
        lambda: index.delete(["first-1"]),
        index.merge,
        lambda: Index.build(FIRST, index.path, overwrite=True),
    ):
        with pytest.raises(GlassrankError, match=r"another process is writing to .*; try again"):
            change()
    assert_whole(Index(index.path))
    first.communicate("\n", timeout=60)
    index.add([Doc("x", "yak")])
    assert [hit.doc_id for hit in index.search("yaks")] == ["x"]


def test_a_second_builder_of_a_new_index_leaves_the_first_ones_work(
    tmp_path: Path, processes: list["subprocess.Popen[str]"]
) -> None:
    def docs() -> Iterator[Doc]:
        yield from FIRST
        with pytest.raises(GlassrankError, match="another process is writing"):
            Index.build([Doc("x", "yak")], tmp_path / "index")

    assert_whole(Index.build(docs(), tmp_path / "index"))


@pytest.mark.tried("Files", "generations read beside a writer", "each was whole", tries=8)
def test_readers_see_only_whole_states_of_a_changing_index(
    tmp_path: Path, processes: list["subprocess.Popen[str]"]
) -> None:
    reader = Index.build(FIRST, tmp_path / "index")
    writer = start(CHANGE_FOREVER, "index", reader.path)
    processes.append(writer)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "changed\n"
    seen: set[int] = set()
    give_up = time.monotonic() + 600
    while len(seen) < 8:
        assert time.monotonic() < give_up
        reader.refresh(verify=True)
        assert_whole(reader)
        assert_whole(Index(reader.path))
        seen.add(reader.generation)
    assert writer.poll() is None
