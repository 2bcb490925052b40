"""Saving: durable, whole or not at all, beside readers; one sentence where it cannot be done."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from model_folders import KINDS, ensemble, outcome, word_model
from reliability import Recorder

import glassrank
from glassrank.errors import GlassrankError
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import fingerprint
from glassrank.storage.folders import Folder

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(glassrank.__file__).parents[1])}


def start(jobs: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", HERE / "saver.py", jobs, folder],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What two of its jobs print, which a process of their own does one after the other."""
    saver = start("at_every_sync,little_room", tmp_path_factory.mktemp("saved"))
    said, complaint = saver.communicate(timeout=300)
    assert saver.returncode == 0, complaint
    return {job: int(number) for job, number in (line.split() for line in said.splitlines())}


@pytest.mark.tried(
    "Files", "models loaded beside one that saves", "the old model or the new one", tries=40
)
@pytest.mark.long
def test_a_reader_beside_a_saver_has_the_old_model_or_the_new_one(tmp_path: Path) -> None:
    wanted = {outcome(word_model(tmp_path / str(seed), seed=seed)) for seed in (0, 1)}
    model = tmp_path / "without_end" / "model"
    model.parent.mkdir()
    word_model(model)
    saver = start("without_end", tmp_path)
    met = []
    try:
        for _ in range(5000):
            met.append(fingerprint(load_model(model).model))
            if len(met) >= 40 and len(set(met)) == 2:
                break
        assert saver.poll() is None
    finally:
        saver.kill()
        saver.communicate()
    assert set(met) == wanted


def test_killed_at_any_sync_the_old_model_or_the_new_one_is_there(
    told: dict[str, int], reliability: Recorder
) -> None:
    kills = told["at_every_sync"]
    assert kills >= 6
    reliability("Files", "SIGKILL while a model is saved", "the old model or the new one", kills)


@pytest.mark.tried(
    "Files", "kinds of changes on a full disk, at every size", "one sentence, nothing lost"
)
def test_where_there_is_no_room_the_old_model_stays(told: dict[str, int]) -> None:
    assert told["little_room"] >= 2000


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_was_saved_is_durable(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()
    sync = os.fsync

    def noted(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    folder = KINDS[kind](tmp_path / "model")
    for path in [tmp_path, folder, *folder.rglob("*")]:
        assert path.stat().st_ino in synced, path


@pytest.mark.tried(
    "Files",
    "a disk that fails while a model is saved or loaded",
    "one sentence, the old model stays",
)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write_text", "mkdir"])
def test_a_disk_that_refuses_is_one_sentence(
    call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    whole = outcome(word_model(tmp_path / "model"))
    monkeypatch.setattr(*((Path, call) if call == "write_text" else (os, "mkdir")), refuse)
    with pytest.raises(GlassrankError, match=os.strerror(code)) as caught:
        word_model(tmp_path / "model", seed=1)
    assert "\n" not in str(caught.value) and str(tmp_path / "model") in str(caught.value)
    monkeypatch.undo()
    assert outcome(tmp_path / "model") == whole


@pytest.mark.tried(
    "Files",
    "a disk that fails while a model is saved or loaded",
    "one sentence, the old model stays",
)
@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE])
def test_a_disk_that_cannot_be_read_is_one_sentence(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Folder, name: str) -> None:
        raise OSError(code, os.strerror(code), str(self.path / name))

    folder = ensemble(tmp_path / "model")
    monkeypatch.setattr(Folder, "open_file", refuse)
    assert os.strerror(code) in outcome(folder)


def test_a_link_in_the_place_of_the_folder_is_not_written_through(tmp_path: Path) -> None:
    whole = outcome(word_model(tmp_path / "precious"))
    (tmp_path / "model").symlink_to("precious")
    with pytest.raises(GlassrankError, match="is a file or a link"):
        word_model(tmp_path / "model", seed=1)
    assert outcome(tmp_path / "precious") == whole
    for name in (".new.part", ".new.old"):
        (tmp_path / name).symlink_to("precious")
    word_model(tmp_path / "new", seed=1)
    assert outcome(tmp_path / "precious") == whole


def test_what_is_no_part_of_a_model_is_not_removed(tmp_path: Path) -> None:
    folder = word_model(tmp_path / "model")
    (folder / "notes.txt").write_text("precious")
    with pytest.raises(GlassrankError, match=r"holds 'notes.txt', .* would be lost"):
        word_model(folder, seed=1)
    with pytest.raises(GlassrankError, match="would be lost"):
        word_model(tmp_path)
    assert (folder / "notes.txt").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
