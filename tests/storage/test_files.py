"""Whole files or none, and lines as the field's formats mean them."""

import gzip
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.errors import GlassrankError, InputError
from glassrank.storage.files import atomic_write, check_encoding, read_blocks, read_lines

# Characters that end a line for Python, though not in these files.
lines = st.lists(st.text(st.sampled_from("aé\t \u2028\x85\x0b\x0c\x1c😀"), max_size=5), max_size=6)


@given(content=lines, name=st.sampled_from(["a.txt", "a.txt.gz"]))
def test_lines_written_are_lines_read(
    content: list[str], name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("files") / name
    with atomic_write(path) as file:
        file.writelines(f"{line}\n" for line in content)
    assert list(read_lines(path)) == list(enumerate(content, 1))
    assert b"".join(read_blocks(path, 3)).decode() == "".join(f"{line}\n" for line in content)


@given(content=lines, size=st.integers(1, 30))
def test_blocks_are_whole_lines(
    content: list[str], size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("files") / "a.txt"
    path.write_text("".join(f"{line}\n" for line in content))
    assert all(block.endswith(b"\n") for block in read_blocks(path, size))


def test_a_gz_is_compressed(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a.tsv.gz") as file:
        file.write("text")
    assert gzip.decompress((tmp_path / "a.tsv.gz").read_bytes()) == b"text"


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_failed_work_leaves_the_old_file_and_nothing_else(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as file:
        file.write("new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(GlassrankError, match=r"cannot write .*a\.txt: No space left"),
        atomic_write(tmp_path / "a.txt") as file,
    ):
        file.write("new")
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(GlassrankError, match=r"cannot write .*a\.txt: No such file"),
        atomic_write(tmp_path / "nowhere" / "a.txt"),
    ):
        pass


def test_windows_line_ends_and_byte_order_mark_are_not_content(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthree")
    assert [line for _, line in read_lines(path)] == ["one", "two", "", "three"]


def test_bad_utf8_is_named_by_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(InputError, match=r"a\.txt:2: invalid UTF-8 at byte 3"):
        list(read_lines(path))


def test_another_encoding_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"na\xefve\n")
    assert list(read_lines(path, "latin-1")) == [(1, "naïve")]


def test_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(InputError, match="unknown encoding 'klingon'"):
        list(read_lines(tmp_path / "a.txt", "klingon"))


@pytest.mark.parametrize("name", ["klingon", "idna"])  # idna cannot replace wrong bytes
def test_an_encoding_of_archives_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"unknown encoding '{name}'"):
        check_encoding(name)


@pytest.mark.parametrize("keep", [5, 15, 40])
def test_a_cut_gz_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(bytes(range(256)))[:keep])
    with pytest.raises(InputError, match=r"a\.txt\.gz.* damaged or truncated"):
        list(read_blocks(path))
    with pytest.raises(InputError, match=r"a\.txt\.gz.* damaged or truncated"):
        list(read_lines(path, "latin-1"))


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.txt does not exist"):
        list(read_lines(tmp_path / "nothing.txt"))
    with pytest.raises(InputError, match="is a folder, expected a file"):
        list(read_blocks(tmp_path))


def test_a_file_is_durable_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then its name is: a power cut leaves the old file or the new one."""
    seen = []

    def sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        kind = "folder" if stat.S_ISDIR(status.st_mode) else status.st_size
        seen.append((kind, (tmp_path / "a.run").exists()))

    monkeypatch.setattr(os, "fsync", sync)
    with atomic_write(tmp_path / "a.run") as file:
        file.write("new")
    assert seen == [(3, False), ("folder", True)]


def test_after_the_rename_an_error_says_that_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", sync)
    with (
        pytest.raises(GlassrankError, match="the file is written"),
        atomic_write(tmp_path / "a.run") as file,
    ):
        file.write("new")
    assert (tmp_path / "a.run").read_text() == "new"


@pytest.mark.parametrize("kind", ["link", "pipe", "second name"])
def test_what_stands_under_the_name_is_replaced_not_followed(tmp_path: Path, kind: str) -> None:
    victim, path = tmp_path / "victim", tmp_path / "a.run"
    victim.write_text("precious")
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.hardlink_to(victim)
    with atomic_write(path) as file:
        file.write("new")
    assert victim.read_text() == "precious"
    assert path.read_text() == "new"
    assert not path.is_symlink()
