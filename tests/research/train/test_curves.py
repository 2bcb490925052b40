"""The picture of a run: what is drawn, from which rows, and what happens without matplotlib."""

import json
import sys
from pathlib import Path

import pytest

from glassrank.errors import InputError
from glassrank.research.train.report import draw_curves, read_log, try_to_draw


def write_log(folder: Path, values: list[float]) -> None:
    rows = [
        {"step": 20 * (i + 1), "loss": 1 / (i + 1), "compared": value, "first_stage": 0.29}
        for i, value in enumerate(values)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # an import of it fails


def test_the_picture_names_the_best_step_and_the_first_stage(tmp_path: Path) -> None:
    write_log(tmp_path, [0.30, 0.41, 0.38, 0.41])
    text = draw_curves(tmp_path, "RR@10").read_text()
    assert "best: 0.4100 at step 40" in text
    assert "RR@10 on dev queries" in text
    assert "first stage alone" in text


def test_the_same_log_gives_the_same_picture(tmp_path: Path) -> None:
    write_log(tmp_path, [0.30, 0.41])
    first = draw_curves(tmp_path, "RR@10").read_text()
    assert draw_curves(tmp_path, "RR@10").read_text() == first


def test_a_picture_may_be_a_png(tmp_path: Path) -> None:
    write_log(tmp_path, [0.30])
    assert draw_curves(tmp_path, "RR@10", "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_log_of_a_killed_run_counts_each_step_once(tmp_path: Path) -> None:
    write_log(tmp_path, [0.30, 0.41])
    again = {"step": 40, "loss": 0.5, "compared": 0.42, "first_stage": 0.29}
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 40, "lo\n' + json.dumps(again) + "\n")
    rows = read_log(tmp_path / "log.jsonl")
    assert [(row["step"], row["compared"]) for row in rows] == [(20, 0.30), (40, 0.42)]


@pytest.mark.parametrize("text", [None, "", '{"step"\n'])
def test_nothing_to_draw_is_one_sentence(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "log.jsonl").write_text(text)
    with pytest.raises(InputError, match=r"log\.jsonl"):
        draw_curves(tmp_path, "RR@10")


@pytest.mark.usefixtures("no_matplotlib")
def test_without_matplotlib_asking_says_what_to_install(tmp_path: Path) -> None:
    write_log(tmp_path, [0.30])
    with pytest.raises(InputError, match=r"pip install 'glassrank\[train\]'"):
        draw_curves(tmp_path, "RR@10")


@pytest.mark.usefixtures("no_matplotlib")
def test_without_matplotlib_a_run_ends_all_the_same(tmp_path: Path) -> None:
    write_log(tmp_path, [0.30])
    said: list[str] = []
    try_to_draw(tmp_path, "RR@10", said.append)
    assert len(said) == 1
    assert "matplotlib" in said[0]
    assert not (tmp_path / "curves.svg").exists()
