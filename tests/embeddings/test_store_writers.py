"""One writer at a time, any number of readers beside it, and a disk that is full."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from child_processes import run_script, start
from small_store import ids_of, passages, small_saved, some_docs, word_ids

from glassrank.embeddings import Progress, Store, encode_index
from glassrank.errors import GlassrankError, InputError
from glassrank.index import Index

CHANGE_FOREVER = """
import sys
from pathlib import Path
from small_store import small_saved, some_docs
from glassrank.index import Index
from glassrank.embeddings import encode_index
index, saved = Index(sys.argv[1]), small_saved("knrm")
for number in range(1_000_000):
    ids = [f"n{i}" for i in range(number % 7, 20)]
    index.add(some_docs(number, ids), replace=True)
    if number % 3 == 0:
        index.merge()
    encode_index(index, saved)
    print("encoded", flush=True)
"""


@pytest.fixture
def writer(tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    """A process that changes an index and its store without end."""
    Index.build(some_docs(1, [f"a{i}" for i in range(30)]), tmp_path / "index")
    process = start(CHANGE_FOREVER, "embeddings", tmp_path / "index")
    yield process
    process.kill()
    process.communicate()


@pytest.mark.tried("Files", "generations read beside a writer", "each was whole", tries=6)
@pytest.mark.long
def test_readers_see_whole_stores_while_a_writer_changes_them(
    tmp_path: Path, writer: "subprocess.Popen[str]"
) -> None:
    assert writer.stdout is not None
    assert writer.stdout.readline() == "encoded\n"
    model = small_saved("knrm").model
    seen: set[int] = set()
    give_up = time.monotonic() + 600
    while len(seen) < 6:
        assert time.monotonic() < give_up
        index = Index(tmp_path / "index")
        try:
            store = Store.open(index.path / "stores" / "knrm-ids", model, index.snapshot)
        except InputError as error:
            assert "has not encoded all documents" in str(error)  # it is about to
            continue
        for segment in index.snapshot.segments:
            part = store.part(segment.record.name)
            for number in range(len(segment)):
                divided = passages(segment.doc(number))
                numbers = range(*part.passages[number : number + 2])
                assert [ids_of(part, n) for n in numbers] == [word_ids(words) for words in divided]
        seen.add(store.generation)
    assert writer.poll() is None


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    index = Index.build(some_docs(1, list("abcdef")), tmp_path / "index")
    saved = small_saved("tk")
    refused = []

    def in_the_middle(progress: Progress) -> None:
        with pytest.raises(GlassrankError, match=r"another process is writing to .*; try again"):
            encode_index(index, saved)
        refused.append(progress)

    report = encode_index(index, saved, progress=in_the_middle)
    assert refused
    Store.open(report.path, saved.model, index.snapshot)


def test_progress_counts_what_was_done_before(tmp_path: Path) -> None:
    index = Index.build(some_docs(1, [f"{i:02}" for i in range(40)]), tmp_path / "index")
    saved, told = small_saved("tk"), list[Progress]()

    def stop_late(progress: Progress) -> None:
        told.append(progress)
        if progress.documents == 30:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassrank.embeddings.encode.BLOCK_DOCS", 10)
        with pytest.raises(KeyboardInterrupt):
            encode_index(index, saved, progress=stop_late)
        before = [p.documents for p in told]
        assert before == sorted(before) and {10, 20, 30} <= set(before) and before[-1] == 30
        report = encode_index(index, saved, progress=told.append)
    after = [p.documents for p in told[len(before) :]]
    assert after == sorted(after) and {30, 40} <= set(after)
    assert after[0] > 20  # two blocks were written, the third was not
    assert all(p.total == 40 and p.seconds_left >= 0 for p in told)
    assert told[-1].seconds_left == 0
    assert (report.documents, report.encoded, report.reused) == (40, 20, 0)
    assert told[-1].bytes_per_document > 0


@pytest.mark.tried(
    "Files",
    "kinds of changes on a full disk, at every size",
    "one sentence, nothing lost",
    tries=2,
)
@pytest.mark.long
def test_a_full_disk_ends_the_work_and_breaks_nothing(tmp_path: Path) -> None:
    lines = run_script("embeddings/full_disk_store.py", tmp_path).splitlines()
    needed = dict(line.split() for line in lines)
    assert needed.keys() == {"new", "changed"}
    assert all(int(limit) > 9000 for limit in needed.values()), needed
