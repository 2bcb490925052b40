"""A folder is the old one or the new one, for whoever reads it and whatever becomes of a writer."""

import os
from pathlib import Path

import pytest
from killed import dies_at, killed
from reliability import Recorder

from glassrank.errors import GlassrankError, InputError
from glassrank.storage import atomic_folders as module
from glassrank.storage.atomic_folders import read_folder, replace_folder
from glassrank.storage.folders import Folder


@pytest.fixture(params=["exchange", "two renames"], autouse=True)
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "two renames":
        monkeypatch.setattr(module, "_exchanged", lambda *_: False)


def write(folder: Path, content: str) -> None:
    with replace_folder(folder) as part:
        (part / "inside").mkdir()
        for file in (part / "a", part / "inside" / "b"):
            file.write_text(content)


def content(folder: Folder) -> str:
    with folder.child("inside") as inside:
        both = {folder.read("a", 100), inside.read("b", 100)}
    assert len(both) == 1
    return both.pop().decode()


def test_it_replaces_the_old_one_or_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "model"
    for text in ("one", "two"):
        write(folder, text)
    with pytest.raises(RuntimeError), replace_folder(folder) as part:
        (part / "a").write_text("three")
        raise RuntimeError
    assert read_folder(folder, content) == "two"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_killed_writer_leaves_the_old_or_the_new_and_the_next_one_tidies_up(
    tmp_path: Path, reliability: Recorder
) -> None:
    folder, number = tmp_path / "model", 1
    seen = set()
    write(folder, "old")
    calls = (os, "rename"), (os, "fsync"), (module, "_exchanged")
    while killed(dies_at(number, lambda: write(folder, "new"), *calls)):
        seen.add(read_folder(folder, content))
        write(folder, "old")
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
        number += 1
    assert number > 5
    assert seen == {"old", "new"}
    kill = "SIGKILL while a folder is replaced as a whole"
    reliability("Files", kill, "the old folder or the new one", number - 1)


def test_a_reader_that_was_overtaken_begins_again(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write(folder, "old")
    tries = []

    def read(opened: Folder) -> str:
        if not tries:
            write(folder, "new")
        tries.append(opened)
        return content(opened)

    assert read_folder(folder, read) == "new"
    assert len(tries) == 2


def test_what_is_damaged_is_not_read_forever(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(FileNotFoundError):
        read_folder(tmp_path / "model", content)
    with pytest.raises(FileNotFoundError):
        read_folder(tmp_path / "nothing", content)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with replace_folder(tmp_path / "model") as part:
        (part / "a").write_text("first")
        with pytest.raises(GlassrankError, match=r"another process is writing to .*model"):
            write(tmp_path / "model", "second")
    assert (tmp_path / "model" / "a").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.tried(
    "Files",
    "links, pipes and folders where a folder is to be written",
    "nothing outside was touched",
)
@pytest.mark.parametrize("name", [".model.part", ".model.old", ".model.lock", "model"])
@pytest.mark.parametrize("kind", ["link", "folder link", "file", "pipe"])
def test_what_stands_in_the_way_leads_nowhere(tmp_path: Path, name: str, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "a").write_text("precious")
    place = tmp_path / "here" / name
    place.parent.mkdir()
    if kind == "file":
        place.write_text("precious")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(victim if kind == "folder link" else victim / "a")
    try:
        write(place.parent / "model", "new")
        assert read_folder(place.parent / "model", content) == "new"
    except GlassrankError:
        assert name in (".model.lock", "model")
        assert place.is_symlink() or place.exists()
    else:
        assert name != "model"
    assert (victim / "a").read_text() == "precious"
    assert [path.name for path in victim.iterdir()] == ["a"]


def test_a_name_that_is_no_name_is_refused(tmp_path: Path) -> None:
    for name in ("..", ".hidden"):
        with pytest.raises(InputError, match="not a plain name"), replace_folder(tmp_path / name):
            pass


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "model", "old")
    full = OSError(28, "No space left on device")

    def fails(*_: object) -> None:
        raise full

    monkeypatch.setattr(module, "_sync_tree", fails)
    with pytest.raises(GlassrankError, match=r"cannot write the folder .*model: No space.*before"):
        write(tmp_path / "model", "new")
    assert read_folder(tmp_path / "model", content) == "old"
    monkeypatch.undo()
    monkeypatch.setattr(Folder, "sync", fails)
    with pytest.raises(GlassrankError, match=r"make .*model durable.*the folder is written"):
        write(tmp_path / "model", "new")
    assert read_folder(tmp_path / "model", content) == "new"
