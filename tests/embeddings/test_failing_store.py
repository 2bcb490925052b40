"""Whatever the disk refuses while a store is read or written: one sentence, nothing is lost."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from reliability import Recorder
from small_store import small_saved, some_docs
from store_changes import contents

from glassrank.embeddings import Store, encode_index
from glassrank.errors import GlassrankError
from glassrank.index import Index

sys.path.append(str(Path(__file__).parents[1] / "index"))
from failing_disk import ERRORS, FailingDisk

SAVED = small_saved("tk")
FAILED = "a call to the disk fails while a store is read or written", "one sentence, nothing lost"


def encoded(path: Path) -> None:
    encode_index(Index(path), SAVED, dtype="int8", graph=True)


CASES: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "new": (lambda path: None, encoded),
    "changed": (lambda path: change(path), encoded),
    "find": (encoded, lambda path: Store.find(Index(path), SAVED.model)),
}


def change(path: Path) -> None:
    encoded(path)
    index = Index(path)
    index.add(some_docs(2, list("uvwxyz")))
    index.merge()


def fails_everywhere(tmp_path: Path, name: str, step: int, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("glassrank.embeddings.encode.BLOCK_DOCS", 5)
    begin, use = CASES[name]
    good, copy, tries = tmp_path / "good", tmp_path / "copy", 0
    Index.build(some_docs(1, list("abcdefgh")), good)
    begin(good)
    shutil.copytree(good, copy)
    use(copy)
    expected = contents(copy)
    for at in range(1, 100_000, step):
        shutil.rmtree(copy)
        shutil.copytree(good, copy)
        with FailingDisk(at, ERRORS[at % len(ERRORS)]).used() as disk:
            try:
                use(copy)
            except GlassrankError as error:
                assert "\n" not in str(error)
                assert "cannot read the" in str(error) or "is kept" in str(error), str(error)
        if not disk.failed:
            break
        tries += 1
        use(copy)
        assert contents(copy) == expected, (at, disk.failed)
    assert tries > 5
    return tries


@pytest.mark.parametrize("name", CASES)
def test_a_disk_that_fails_is_one_sentence(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, reliability: Recorder
) -> None:
    reliability("Files", *FAILED, fails_everywhere(tmp_path, name, 13, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_at_every_moment(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, reliability: Recorder
) -> None:
    reliability("Files", *FAILED, fails_everywhere(tmp_path, name, 1, monkeypatch))
