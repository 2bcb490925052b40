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
    row = {"step": 20, "loss": 0.5, "compared": 0.4, "first_stage": 0.3}
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


RUN = """
model = "knrm"
out = "out"
prepared = "prepared"
query_length = 4
doc_length = {doc_length}
vectors = {{ size = 8, min_count = 1 }}
sampler = {{ batch = 4 }}
optimizer = {{ steps = 2, rest = {rate} }}
validation = {{ every = 1 }}
[[collections]]
name = "mine"
docs = "docs.tsv"
train_queries = "queries.tsv"
train_qrels = "qrels.txt"
dev_queries = "queries.tsv"
dev_qrels = "qrels.txt"
"""


def test_arrays_and_runs_belong_to_their_settings(call: Call, tmp_path: Path) -> None:
    """What was prepared, or begun, with other settings is refused, in one sentence."""
    files, config = tmp_path, tmp_path / "run.toml"
    texts = ("cats chase mice", "mice eat cheese", "cheese is yellow", "cats sleep")
    (files / "docs.tsv").write_text("".join(f"d{i}\t{text}\n" for i, text in enumerate(texts)))
    (files / "queries.tsv").write_text("q1\tmice cheese\nq2\tcats\n")
    (files / "qrels.txt").write_text("q1 0 d1 1\nq2 0 d3 1\n")
    config.write_text(RUN.format(doc_length=9, rate=0.1))
    assert call("prepare", "run.toml").returncode == 0
    config.write_text(RUN.format(doc_length=8, rate=0.1))
    done = call("train", "run.toml")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "prepared was made with doc_length = 9, now it is 8" in done.stderr
    assert "glassrank prepare CONFIG.toml" in done.stderr
    assert call("prepare", "run.toml").returncode == 0
    assert call("train", "run.toml").returncode == 0
    assert call("train", "run.toml").returncode == 0  # done already
    config.write_text(RUN.format(doc_length=8, rate=0.2))
    done = call("train", "run.toml")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "last was made with optimizer.rest = 0.1, now it is 0.2" in done.stderr
    config.write_text(RUN.format(doc_length=8, rate=0.1))
    (files / "docs.tsv").write_text((files / "docs.tsv").read_text() + "new\tone more text\n")
    assert call("prepare", "run.toml").returncode == 0
    done = call("train", "run.toml")
    assert done.returncode == 2 and "last was made with arrays = " in done.stderr
