"""The mean of several runs of one model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from model_folders import word_model

from glassrank.errors import InputError
from glassrank.models.checkpoint import load_model
from glassrank.models.trained import save_model
from glassrank.train.combine import average, main


def test_the_weights_are_means(tmp_path: Path) -> None:
    one = load_model(word_model(tmp_path / "one"))
    other = load_model(tmp_path / "one")
    with torch.no_grad():
        for weights in other.model.parameters():
            weights.add_(torch.rand_like(weights))
    save_model(tmp_path / "other", other.model, other.usage, other.vocabulary, "")
    main([str(tmp_path / name) for name in ("mean", "one", "other")])
    mean = load_model(tmp_path / "mean").model.state_dict()
    for name, weights in one.model.state_dict().items():
        expected = (weights + other.model.state_dict()[name]) / 2
        torch.testing.assert_close(mean[name], expected, msg=name)


def test_only_like_models_have_one(tmp_path: Path) -> None:
    saved = load_model(word_model(tmp_path / "one"))
    with pytest.raises(InputError, match="one family, config and vocabulary"):
        average([saved, replace(saved, vocabulary=[*saved.vocabulary[:-1], "other"])])
