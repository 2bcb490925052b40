"""The mean of several runs of one model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from model_folders import word_model
from typer.testing import CliRunner

from glassrank.cli import make_app
from glassrank.errors import InputError
from glassrank.models.io.load import load_model
from glassrank.models.io.torch_files import save_model
from glassrank.research.papers.ensemble import save_ensemble
from glassrank.research.train.combine import average


def test_the_weights_are_means(tmp_path: Path) -> None:
    one = load_model(word_model(tmp_path / "one"))
    other = load_model(tmp_path / "one")
    with torch.no_grad():
        for weights in other.model.parameters():
            weights.add_(torch.rand_like(weights))
    save_model(tmp_path / "other", other.model, other.usage, other.vocabulary, "")
    folders = [str(tmp_path / name) for name in ("one", "other")]
    made = CliRunner().invoke(make_app(), ["average", *folders, "--out", str(tmp_path / "mean")])
    assert made.exit_code == 0, made.output
    mean = load_model(tmp_path / "mean").model.state_dict()
    for name, weights in one.model.state_dict().items():
        expected = (weights + other.model.state_dict()[name]) / 2
        torch.testing.assert_close(mean[name], expected, msg=name)


def test_only_like_models_have_one(tmp_path: Path) -> None:
    saved = load_model(word_model(tmp_path / "one"))
    with pytest.raises(InputError, match="the same family, config and vocabulary"):
        average([saved, replace(saved, vocabulary=[*saved.vocabulary[:-1], "other"])])


def test_an_ensemble_has_none(tmp_path: Path) -> None:
    one = word_model(tmp_path / "one")
    saved = load_model(one)
    save_ensemble(tmp_path / "both", [one, one], saved.usage, "")
    with pytest.raises(InputError, match="average its members"):
        average([load_model(tmp_path / "both")])


@pytest.mark.parametrize("what", ["--vectors", "--layers"])
def test_bits_that_there_are_not(what: str, tmp_path: Path) -> None:
    one = word_model(tmp_path / "one")
    options = ["average", str(one), "--out", str(tmp_path / "mean"), what, "int4"]
    with pytest.raises(InputError, match="float32, float16, int8, not in int4"):
        CliRunner().invoke(make_app(), options, catch_exceptions=False)
    assert not (tmp_path / "mean").exists()


def test_all_who_may_read_a_new_file_may_read_the_weights(tmp_path: Path) -> None:
    folder = word_model(tmp_path / "one")
    (tmp_path / "new").touch()
    rights = {path.stat().st_mode for path in [*folder.iterdir(), tmp_path / "new"]}
    assert len(rights) == 1
