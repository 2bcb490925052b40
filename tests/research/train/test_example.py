"""The file to start from: read back as a user would, for every model."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from glassrank.errors import InputError
from glassrank.models import MODELS, EmbeddingTable, TokenBatch
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import OVERRIDES, make_example, read_config
from glassrank.settings import from_plain

LARGE = ("bert", "mores", "kernel_bert", "maxsim", "single_vector")


def read(tmp_path: Path, text: str) -> TrainConfig:
    (tmp_path / "run.toml").write_text(text)
    return read_config(tmp_path / "run.toml")


@pytest.mark.parametrize("name", MODELS)
def test_an_example_is_read_and_its_model_built(tmp_path: Path, name: str) -> None:
    config = read(tmp_path, make_example(name))
    assert config.model == name
    family = MODELS[name]
    # Of those with a hundred million weights, shapes alone.
    device = torch.device("meta" if name in LARGE else "cpu")
    with device, torch.no_grad():
        model = family(
            from_plain(family.info.config_type, config.config), EmbeddingTable(torch.ones(4, 300))
        )
        model.to(device)  # with the kernels, which are made on the CPU
        query, longest = (
            TokenBatch(torch.ones(1, length).int(), torch.ones(1, length))
            for length in (config.query_length, config.doc_length)
        )
        assert model.eval()(query, longest).shape == (1,)


@pytest.mark.parametrize("name", MODELS)
def test_an_example_shows_the_models_defaults(tmp_path: Path, name: str) -> None:
    shown = read(tmp_path, make_example(name)).config
    kind = MODELS[name].info.config_type
    assert from_plain(kind, shown) == replace(kind(), **OVERRIDES.get(name, {}))


@pytest.mark.parametrize("name", MODELS)
def test_lengths_are_those_of_the_models_layers(tmp_path: Path, name: str) -> None:
    config = read(tmp_path, make_example(name))
    for field in ("query_length", "doc_length"):
        assert config.config.get(field, getattr(config, field)) == getattr(config, field)


def test_comments_are_the_code_s_own() -> None:
    text = make_example("tk")
    assert "# A learned weight for each query word, from its own vector" in text
    assert "# One of hinge, ranknet, pointwise, softmax" in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no model 'con_knrm'; did you mean 'conv_knrm'\?"):
        make_example("con_knrm")
    with pytest.raises(InputError, match=r"no model 'zz99'; known are bert, co_pacrr, "):
        make_example("zz99")
