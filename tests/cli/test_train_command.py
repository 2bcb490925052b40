"""`glassrank train` apart from training itself: a file to start from, curves, mistakes."""

import json
from pathlib import Path

import pytest
from command_line import Call

CONFIG = """
model = "knrm"
out = "out"
prepared = "prepared"
collections = [{ name = "mine", docs = "d", train_queries = "q", train_qrels = "r" }]
"""


def test_an_example_can_be_sent_to_a_file_and_used(call: Call, tmp_path: Path) -> None:
    done = call("train", "--example", "tk")
    assert done.returncode == 0
    assert done.stderr == ""
    (tmp_path / "run.toml").write_text(done.stdout)
    assert "glassrank prepare CONFIG.toml" in call("train", "run.toml").stderr  # what is missing


def test_curves_of_a_run(call: Call, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    (tmp_path / "out").mkdir()
    row = {"step": 20, "loss": 0.5, "value": 0.4, "first_stage": 0.3}
    (tmp_path / "out" / "log.jsonl").write_text(json.dumps(row) + "\n")
    done = call("train", "run.toml", "--curves")
    assert done.returncode == 0
    assert (tmp_path / "out" / "curves.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "glassrank train --example tk > run.toml"),
        (("--example", "knmr"), "there is no model 'knmr'; did you mean 'knrm'?"),
        (("nowhere.toml",), "nowhere.toml does not exist"),
        (("run.toml", "--curves"), "log.jsonl does not exist"),
    ],
)
def test_mistakes(call: Call, tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    done = call("train", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
