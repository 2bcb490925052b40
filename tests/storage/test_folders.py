"""Nothing in a folder leads outside it, whatever stands there under the names that are used."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from glassrank.errors import CorruptError, GlassrankError, wrap_os_errors
from glassrank.storage.atomic_folders import remove_tree
from glassrank.storage.folders import Folder, is_plain_name

OUTSIDE = [
    "..",
    ".",
    "",
    "../x",
    "a/b",
    "/etc/passwd",
    "a\\b",
    ".x",
    "a\n",
    "a\0b",
    "C:x",
    "x" * 300,
]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "folder").mkdir()
    return Folder.open(tmp_path / "folder")


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, victim: path.symlink_to(victim),
    "link to nowhere": lambda path, victim: path.symlink_to(victim.with_name("new")),
    "link to a folder": lambda path, victim: path.symlink_to(victim.parent),
    "link to zeros": lambda path, victim: path.symlink_to("/dev/zero"),
    "pipe": lambda path, victim: os.mkfifo(path),
    "folder": lambda path, victim: path.mkdir(),
}
hostile = pytest.mark.parametrize("kind", HOSTILE)


@pytest.mark.tried(
    "Files", "links, pipes and names that lead out of a folder", "nothing outside was touched"
)
@pytest.mark.parametrize("name", OUTSIDE)
def test_only_plain_names_are_looked_up(folder: Folder, name: str) -> None:
    assert not is_plain_name(name)
    for use in (
        folder.open_file,
        folder.create,
        folder.reopen,
        folder.child,
        folder.make_child,
        folder.remove,
        lambda name: folder.write(name, b"x"),
        lambda name: folder.read(name, 10),
    ):
        with pytest.raises(CorruptError, match="not a plain name") as raised:
            use(name)
        assert "\n" not in str(raised.value)
    assert folder.names() == []


@pytest.mark.tried(
    "Files", "links, pipes and names that lead out of a folder", "nothing outside was touched"
)
@hostile
def test_only_a_plain_file_is_opened(folder: Folder, victim: Path, kind: str) -> None:
    HOSTILE[kind](folder.path / "a", victim)
    for use in (folder.open_file, folder.reopen, lambda name: folder.read(name, 10)):
        with pytest.raises(CorruptError, match=r"folder/a is damaged: expected a regular file"):
            use("a")
    with pytest.raises(FileExistsError):
        folder.create("a")
    assert victim.read_text() == "precious"
    assert not victim.with_name("new").exists()


@pytest.mark.tried(
    "Files", "links, pipes and names that lead out of a folder", "nothing outside was touched"
)
@hostile
def test_a_folder_inside_is_not_a_link(folder: Folder, victim: Path, kind: str) -> None:
    HOSTILE[kind](folder.path / "a", victim)
    if kind != "folder":
        with pytest.raises(CorruptError, match="is a link or a file, expected a folder"):
            folder.child("a")
    with pytest.raises(FileExistsError):
        folder.make_child("a")


@pytest.mark.tried(
    "Files", "links, pipes and names that lead out of a folder", "nothing outside was touched"
)
@hostile
@pytest.mark.parametrize("name", ["a", ".a.part"])
def test_a_write_stays_inside(folder: Folder, victim: Path, kind: str, name: str) -> None:
    HOSTILE[kind](folder.path / name, victim)
    if kind == "folder":
        with pytest.raises(OSError):
            folder.write("a", b"new")
    else:
        folder.write("a", b"new")
        assert folder.names() == ["a"]
        assert folder.read("a", 3) == b"new"
        assert stat.S_ISREG((folder.path / "a").lstat().st_mode)
    assert victim.read_text() == "precious"
    assert not victim.with_name("new").exists()


@pytest.mark.parametrize("name", ["a", ".a.part", "write.lock"])
def test_a_second_name_of_a_file_outside_is_not_written_through(
    folder: Folder, victim: Path, name: str
) -> None:
    (folder.path / name).hardlink_to(victim)
    with folder.lock():
        folder.write("a", b"new")
    assert victim.read_text() == "precious"
    (folder.path / "b").hardlink_to(victim)
    with pytest.raises(CorruptError, match="second name"):
        folder.reopen("b")


@pytest.mark.tried(
    "Files", "links, pipes and names that lead out of a folder", "nothing outside was touched"
)
@hostile
def test_a_lock_is_a_plain_file(folder: Folder, victim: Path, kind: str) -> None:
    HOSTILE[kind](folder.path / "write.lock", victim)
    with pytest.raises(CorruptError, match=r"write\.lock is damaged"), folder.lock():
        pass
    assert victim.read_text() == "precious"
    assert not victim.with_name("new").exists()


def test_a_lock_keeps_others_out(folder: Folder) -> None:
    with Folder.open(folder.path) as other:
        with (
            folder.lock(),
            pytest.raises(GlassrankError, match=r"another process is writing to .*folder; try"),
            other.lock(),
        ):
            pass
        with other.lock():
            pass
        with (
            folder.lock("model"),
            other.lock(),
            pytest.raises(GlassrankError, match=r"writing to .*folder/model; try"),
            other.lock("model"),
        ):
            pass
    assert folder.names() == ["write.lock"]


def test_no_more_is_read_than_allowed(folder: Folder) -> None:
    folder.write("a", b"12345")
    assert folder.read("a", 5) == b"12345"
    with pytest.raises(CorruptError, match=r"a is damaged: expected at most 4 bytes"):
        folder.read("a", 4)


@pytest.mark.tried(
    "Files", "links, pipes and names that lead out of a folder", "nothing outside was touched"
)
@hostile
def test_removing_does_not_follow(folder: Folder, victim: Path, kind: str) -> None:
    (folder.path / "tree").mkdir()
    HOSTILE[kind](folder.path / "tree" / "a", victim)
    HOSTILE[kind](folder.path / "b", victim)
    for name in ("tree", "b", "nothing"):
        remove_tree(folder, name)
    assert folder.names() == []
    assert victim.read_text() == "precious"


def test_a_folder_knows_whether_its_path_leads_to_another(folder: Folder) -> None:
    assert folder.is_current()
    folder.path.rename(folder.path.with_name("moved"))
    assert not folder.is_current()
    folder.path.mkdir()
    assert not folder.is_current()
    folder.write("a", b"x")  # where it was opened, not where the path leads
    assert list(folder.path.iterdir()) == []


def test_an_error_of_the_disk_names_the_whole_path(folder: Folder) -> None:
    with (
        pytest.raises(
            GlassrankError, match=r"^cannot read it \(.*folder/a\): No such file .*; try$"
        ),
        wrap_os_errors("read it", "try"),
    ):
        folder.open_file("a")


@hostile
def test_a_child_loses_only_what_a_writer_made(folder: Folder, victim: Path, kind: str) -> None:
    (folder.path / "a").mkdir()
    for name in ("ours.npy", "kept.npy", ".ours.npy.part", "letter.txt"):
        (folder.path / "a" / name).write_text("x")
    HOSTILE[kind](folder.path / "a" / "other.npy", victim)
    folder.remove_child("a", lambda name: name.endswith(".npy"), keep=["kept.npy"])
    left = {"kept.npy", "letter.txt"} | ({"other.npy"} if kind == "folder" else set())
    assert {path.name for path in (folder.path / "a").iterdir()} == left
    HOSTILE[kind](folder.path / "b", victim)
    folder.remove_child("b", lambda name: True)
    assert victim.read_text() == "precious"
    assert (folder.kind("b") is None) == (kind == "folder")
