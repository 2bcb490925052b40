"""A mistake in a run's TOML is one sentence that names the nearest right key."""

from pathlib import Path

import pytest

from glassrank.errors import InputError
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import read_config

GOOD = """
model = "tk"
out = "out"
prepared = "prepared"

[[collections]]
name = "small"
docs = "docs.tsv"
train_queries = "q.tsv"
train_qrels = "r.txt"

[optimizer]
contextual = 1
"""


def read(tmp_path: Path, text: str) -> TrainConfig:
    (tmp_path / "run.toml").write_text(text)
    return read_config(tmp_path / "run.toml")


def test_a_good_file_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, GOOD)
    assert config.optimizer.contextual == 1.0
    assert config.collections[0].name == "small"


def test_of_several_files_the_later_ones_hold(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(GOOD)
    (tmp_path / "first.toml").write_text(
        'extends = "base.toml"\nseed = 1\nloss = { kind = "kl", temperature = 2.0 }\n'
    )
    (tmp_path / "second.toml").write_text('seed = 2\nout = "second"\nloss = { kind = "hinge" }\n')
    config = read(tmp_path, 'extends = ["first.toml", "second.toml"]\nout = "third"\n')
    assert (config.model, config.seed, config.out) == ("tk", 2, "third")
    assert (config.loss.kind, config.loss.temperature) == ("hinge", 2.0)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "contextual = 1",
            "contextal = 1",
            "optimizer: there is no 'contextal'; did you mean 'contextual'?",
        ),
        ("contextual = 1", 'contextual = "1"', "optimizer.contextual: expected float, found '1'"),
        ("contextual = 1", "steps = 1.5", "optimizer.steps: expected int, found 1.5"),
        ('model = "tk"', 'modle = "tk"', "there is no 'modle'; did you mean 'model'?"),
        ('model = "tk"', "", "'model' is missing"),
        ("[optimizer]", "[loss]\nkind = 'hinges'\n[optimizer]", "did you mean 'hinge'?"),
        ("[optimizer]", "[optimizer", "is not valid TOML"),
        ('model = "tk"', 'model = "knmr"', "model: 'knmr' is not known; did you mean 'knrm'?"),
        (
            "[optimizer]",
            "[config]\nterm_weight = true\n[optimizer]",
            "did you mean 'term_weights'?",
        ),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, GOOD.replace(old, new))
    assert sentence in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_config(tmp_path / "nowhere.toml")
