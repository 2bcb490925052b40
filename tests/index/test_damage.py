"""Damage to any file of an index is found when it is opened, and the file named."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from reliability import Recorder

from glassrank.errors import CorruptError, GlassrankError
from glassrank.index import Index
from glassrank.types import Doc

NAMED = "refused, the file named"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Two segments, one with deleted documents, and one file without rows."""
    docs = [Doc(f"d{i}", f"ant bee {'cat ' * i}") for i in range(40)]
    index = Index.build(docs, tmp_path_factory.mktemp("damage") / "index")
    index.add([Doc("e", "elk", "Title"), Doc("f", "fox")])
    index.delete(["d3", "d4"])
    assert len(index.snapshot.segments) == 2
    return index


def files(index: Index) -> list[Path]:
    found = [path for path in index.path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert len(found) > 30
    assert any(path.name.startswith("deleted-") for path in found)
    return found


def assert_named(index: Index, path: Path, problem: str) -> None:
    with pytest.raises(CorruptError, match=f"{re.escape(str(path))} is {problem}") as raised:
        Index(index.path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("place", "flip"),
    [(0.0, 1), (0.01, 0x80), (0.1, 0x20), (0.3, 1), (0.5, 0x80), (0.9, 0x20), (1.0, 1)],
)
def test_a_flipped_byte(index: Index, place: float, flip: int, reliability: Recorder) -> None:
    for path in files(index):
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[int(place * (len(content) - 1))] ^= flip
        path.write_bytes(damaged)
        try:
            assert_named(index, path, "damaged")
        finally:
            path.write_bytes(content)
    assert len(Index(index.path)) == 40
    reliability("Files", "a file of an index damaged", NAMED, len(files(index)))


@pytest.mark.parametrize("kept", [0, 100, 128, -1])
def test_a_cut_file(index: Index, kept: int, reliability: Recorder) -> None:
    for path in files(index):
        content = path.read_bytes()
        if kept < len(content):
            path.write_bytes(content[:kept])
            try:
                assert_named(index, path, "damaged")
            finally:
                path.write_bytes(content)
            reliability("Files", "a file of an index damaged", NAMED)


def test_a_file_that_grew(index: Index) -> None:
    for path in files(index):
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        try:
            assert_named(index, path, "damaged")
        finally:
            path.write_bytes(content)


@contextmanager
def moved_away(path: Path) -> Iterator[None]:
    hidden = path.rename(path.with_name(f"{path.name}.hidden"))
    try:
        yield
    finally:
        hidden.rename(path)


def test_a_missing_file(index: Index, reliability: Recorder) -> None:
    for path in files(index):
        if path.name != "manifest.json":
            with moved_away(path):
                assert_named(index, path, "missing")
            reliability("Files", "a file of an index damaged", NAMED)


def test_a_missing_segment(index: Index) -> None:
    folder = index.snapshot.segments[0].folder
    missing = pytest.raises(CorruptError, match=f"{folder.name}/.* is missing")
    with moved_away(folder), missing:
        Index(index.path)


def test_a_missing_manifest_is_no_index(index: Index) -> None:
    refused = pytest.raises(GlassrankError, match=r"is not an index \(it has no manifest.json\)")
    with moved_away(index.path / "manifest.json"), refused:
        Index(index.path)


def test_a_writer_names_a_missing_file_too(index: Index) -> None:
    path = index.snapshot.segments[0].folder / "lengths.npy"
    with moved_away(path), pytest.raises(CorruptError, match=r"lengths\.npy is missing"):
        index.add([Doc("g", "gnu")])
    assert len(Index(index.path)) == 40
