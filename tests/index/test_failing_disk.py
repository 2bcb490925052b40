"""Whatever the disk refuses, at whatever moment: one sentence, and nothing is lost."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from failing_disk import ERRORS, FailingDisk
from hostile_index import build
from index_files import leftovers
from reliability import Recorder

from glassrank.errors import GlassrankError, InputError
from glassrank.index import Index
from glassrank.types import Doc

SAYS = {"before": "is as it was before", "after": " made, but", "unread": "cannot read the"}
FAILED = "a call to the disk fails while an index is read or changed", "one sentence, nothing lost"
NEW = [Doc("n1", "ant yak"), Doc("n2", "bee")]
CHANGES: dict[str, Callable[[Path], object]] = {
    "open": lambda path: Index(path),
    "add": lambda path: Index(path).add(NEW),
    "replace and delete": lambda path: Index(path).change(
        add=[*NEW, Doc("d01", "new")], delete=["e1"], replace=True
    ),
    "merge": lambda path: Index(path).merge(),
    "overwrite": lambda path: Index.build(NEW, path, overwrite=True),
    "build": lambda path: Index.build(NEW, path.with_name("new")),
}


def state(path: Path) -> tuple[int, list[Doc]]:
    try:
        index = Index(path)
    except InputError as error:
        assert "is not an index" in str(error)
        return 0, []
    return index.generation, list(index.docs())


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("failing") / "index"
    build(path)
    return path


def fails_everywhere(good: Path, tmp_path: Path, name: str, step: int) -> Counter[str]:
    """At every n-th call; how often each kind of call failed."""
    change = CHANGES[name]
    copy = tmp_path / "index"
    result = copy.with_name("new") if name == "build" else copy
    shutil.copytree(good, copy)
    before = state(result)
    change(copy)
    after = state(result)
    failed: Counter[str] = Counter()
    for at in range(1, 100_000, step):
        shutil.rmtree(tmp_path)
        shutil.copytree(good, copy)
        message = ""
        with FailingDisk(at, ERRORS[at % len(ERRORS)]).used() as disk:
            try:
                change(copy)
            except GlassrankError as error:
                message = str(error)
        if not disk.failed:
            break
        failed[disk.failed] += 1
        found = state(result)
        assert "\n" not in message
        assert found in (before, after), (at, disk.failed, message)
        if message and name != "open":
            said = [what for what in SAYS if SAYS[what] in message]
            if found == after:
                assert "after" in said, (at, message)
            else:
                assert said in (["before"], ["unread"]), (at, message)
        if name not in ("open", "build"):
            Index(copy).merge()  # the next writer works, and tidies up
            assert not leftovers(copy), (at, disk.failed, leftovers(copy))
    assert at > 10 * step
    return failed


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.long
def test_a_disk_that_fails_is_one_sentence(
    good: Path, tmp_path: Path, name: str, reliability: Recorder
) -> None:
    failed = fails_everywhere(good, tmp_path / "here", name, step=17)
    reliability("Files", *FAILED, failed.total())


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_it_is_at_every_moment(
    good: Path, tmp_path: Path, name: str, reliability: Recorder
) -> None:
    failed = fails_everywhere(good, tmp_path / "here", name, step=1)
    assert failed.keys() >= {"open", "mmap", "read"}
    if name != "open":
        assert failed.keys() >= {"write", "fsync", "replace", "mkdir", "flock"}
    reliability("Files", *FAILED, failed.total())
