"""A run's folder: its state is checked, tied to its settings, and nothing in it leads outside."""

import errno
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_run import tiny_config, tiny_prepared

from glassrank.errors import GlassrankError, InputError
from glassrank.models.io.model_folder import fingerprint
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.loop import TrainingResult, train
from glassrank.research.train.prepared import Prepared
from glassrank.research.train.report import read_log
from glassrank.storage.atomic_folders import write_checksums
from glassrank.storage.folders import Folder


def run(
    out: Path, config: TrainConfig | None = None, prepared: Prepared | None = None
) -> TrainingResult:
    return train(config or tiny_config(), prepared or tiny_prepared(), out)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "out"
    run(out)
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def refused(out: Path, config: TrainConfig | None = None) -> str:
    with pytest.raises(GlassrankError) as caught:
        run(out, config)
    message = str(caught.value)
    assert str(out) in message and "\n" not in message and len(message) < 600, message
    return message


# Settings


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 7}, "seed"),
        ({"loss": {"kind": "ranknet"}}, "loss.kind"),
        ({"sampler": {"batch": 8, "negatives": 2}}, "sampler.batch"),
        ({"optimizer": {"steps": 60, "rest": 0.01, "vectors": 0.01}}, "optimizer.rest"),
        ({"validation": {"every": 10}}, "validation.every"),
        ({"first_stage_weight": True}, "first_stage_weight"),
    ],
)
def test_a_run_does_not_go_on_with_other_settings(
    change: dict[str, Any], named: str, out: Path
) -> None:
    said = refused(out, tiny_config(**change))
    assert f"was made with {named} = " in said and "set another out" in said


def test_a_run_does_not_go_on_with_other_arrays(tmp_path: Path) -> None:
    run(tmp_path, prepared=replace(tiny_prepared(), fingerprint="one"))
    with pytest.raises(InputError, match="was made with arrays = 'one', now it is 'other'"):
        run(tmp_path, prepared=replace(tiny_prepared(), fingerprint="other"))


def test_the_card_says_so_where_arrays_have_another_seed(tmp_path: Path) -> None:
    for seed, said in ((42, False), (7, True)):
        arrays = replace(tiny_prepared(), description={"config": {"seed": 42}})
        run(tmp_path / str(seed), tiny_config(seed=seed), arrays)
        card = (tmp_path / str(seed) / "best" / "card.md").read_text("utf-8")
        assert ("Seed: 7; the arrays were prepared with seed 42" in card) == said


def test_a_run_may_be_made_longer_and_saved_smaller(out: Path) -> None:
    longer = tiny_config(
        optimizer={"steps": 80, "rest": 0.05, "vectors": 0.01}, vectors={"saved": "int8"}
    )
    assert run(out, longer).progress.step == 80
    steps = {"schedule": "linear", "rest": 0.05, "vectors": 0.01}
    linear = [tiny_config(optimizer={"steps": n, **steps}) for n in (20, 40)]
    run(out.with_name("linear"), linear[0])
    assert "optimizer.steps" in refused(out.with_name("linear"), linear[1])


# Damage


@pytest.mark.tried("Files", "a run's state damaged", "one sentence that names it", tries=60)
def test_every_damage_to_the_state_is_named(out: Path) -> None:
    rng = random.Random(0)
    tried = 0
    for path in sorted((out / "last").iterdir()):
        content = path.read_bytes()
        for _ in range(5):
            place = rng.randrange(len(content))
            flipped = bytes([content[place] ^ 1 << rng.randrange(8)])
            for damaged in (
                b"",
                content[:place],
                content + b"\0",
                content[:place] + flipped + content[place + 1 :],
            ):
                path.write_bytes(damaged)
                refused(out)
                tried += 1
        path.unlink()
        refused(out)
        path.write_bytes(content)
    assert tried == 3 * 20
    run(out)


def _progress(**changes: object) -> Callable[[Path], object]:
    def change(last: Path) -> None:
        stored = json.loads((last / "progress.json").read_text())
        stored["progress"].update(changes)
        (last / "progress.json").write_text(json.dumps(stored))

    return change


def _tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    def edit(last: Path) -> None:
        tensors = load_file(last / "state.safetensors")
        change(tensors)
        save_file(tensors, last / "state.safetensors")

    return edit


HARM: dict[str, Callable[[Path], object]] = {
    "a step of words": _progress(step="x"),
    "a history of words": _progress(history="x"),
    "a history of numbers": _progress(history=[1]),
    "an unknown value": _progress(other=1),
    "no table": lambda last: (last / "progress.json").write_text("[]"),
    "deep": lambda last: (last / "progress.json").write_text("[" * 100_000),
    "no number": _tensors(lambda found: found["model.weights"].fill_(float("nan"))),
    "a missing weight": _tensors(lambda found: found.pop("model.weights")),
    "another shape": _tensors(lambda found: found.update({"model.weights": torch.zeros(3)})),
    "another shape of moments": _tensors(
        lambda found: found.update(
            {n: torch.zeros(3) for n in found if n.endswith("exp_avg") and "model" not in n}
        )
    ),
    "a parameter that is not there": _tensors(
        lambda found: found.update(
            {
                f"{n.split('.')[0]}.99.exp_avg": torch.zeros(3)
                for n in list(found)
                if "model" not in n
            }
        )
    ),
    "no tensors": lambda last: (last / "state.safetensors").write_bytes(b"no tensors"),
}


@pytest.mark.tried("Files", "a run's state that lies", "refused in one sentence")
@pytest.mark.parametrize("kind", HARM)
def test_a_state_that_lies_is_one_sentence(kind: str, out: Path) -> None:
    HARM[kind](out / "last")
    with Folder.open(out / "last") as last:
        write_checksums(last, "training state", ["progress.json", "state.safetensors"])
    refused(out)


@pytest.mark.tried(
    "Files", "links and pipes in a run's folder", "not opened, nothing outside was touched"
)
@pytest.mark.parametrize("name", ["progress.json", "state.safetensors", "checksums.json"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_plain_file_is_not_opened(
    name: str, make: Callable[[Path], object], out: Path
) -> None:
    (out / "last" / name).unlink()
    make(out / "last" / name)
    refused(out)


def test_a_state_of_an_older_version_says_what_to_do(out: Path) -> None:
    (out / "last" / "checksums.json").unlink()
    assert f"remove {out / 'last'}" in refused(out)


# Links in the run's folder


@pytest.mark.tried(
    "Files", "links and pipes in a run's folder", "not opened, nothing outside was touched"
)
@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("name", ["log.jsonl", "result.json", "curves.svg", "last", "best"])
def test_nothing_is_written_through_a_link(name: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    if name in ("last", "best"):
        precious.mkdir()
        (precious / "text").write_text("precious")
    else:
        precious.write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(precious)
    try:
        run(tmp_path / "out")
    except GlassrankError as error:
        assert "\n" not in str(error) and name in str(error)
    kept = precious / "text" if precious.is_dir() else precious
    assert kept.read_text() == "precious"
    assert not precious.is_dir() or len(list(precious.iterdir())) == 1


def test_a_second_name_of_a_log_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "log.jsonl").hardlink_to(tmp_path / "precious")
    refused(tmp_path / "out")
    assert (tmp_path / "precious").read_text() == "precious"


# Disks


@pytest.mark.usefixtures("pictures")
def test_all_of_a_run_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = set()
    sync = os.fsync

    def noted(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    run(tmp_path / "out")
    assert (tmp_path / "out" / "curves.svg").exists()
    for path in [tmp_path / "out", *(tmp_path / "out").rglob("*")]:
        assert path.stat().st_ino in synced, path


FOUR_STEPS = tiny_config(optimizer={"steps": 4, "rest": 0.05}, validation={"every": 2})


@pytest.fixture(scope="module")
def after_four_steps(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fingerprint(run(tmp_path_factory.mktemp("whole") / "out", FOUR_STEPS).model)


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("at", [1, 3, 8, 15, 24])
def test_a_disk_that_refuses_is_one_sentence_and_the_run_goes_on_later(
    at: int, code: int, after_four_steps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At some of the places where something is made durable."""
    sync, calls = os.fsync, iter(range(1, at))

    def failing(handle: int) -> None:
        if next(calls, None) is None:
            raise OSError(code, os.strerror(code))
        sync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    try:
        run(tmp_path / "out", FOUR_STEPS)
    except GlassrankError as error:
        assert os.strerror(code) in str(error) and "\n" not in str(error)
    monkeypatch.undo()
    monkeypatch.setattr("glassrank.research.train.loop.try_to_draw", lambda *_: None)
    assert fingerprint(run(tmp_path / "out", FOUR_STEPS).model) == after_four_steps


@pytest.mark.parametrize(
    "line", ["[1]", "7", '{"step": "x"}', '{"step": 1e400}', "[" * 100_000, "\udcff", '{"step": 9}']
)
def test_a_log_that_is_none_is_one_sentence(line: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(line, "utf-8", "surrogateescape")
    with pytest.raises(InputError, match="no validation to draw"):
        read_log(tmp_path / "log.jsonl")
