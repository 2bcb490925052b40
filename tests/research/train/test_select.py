"""Greedy forward selection: against a slow oracle, and from model folders to an ensemble's."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_run import tiny_config, tiny_prepared
from typer.testing import CliRunner

from glassrank.cli import make_app
from glassrank.errors import GlassrankError, InputError
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.research.papers.ensemble import Ensemble
from glassrank.research.train.batches import SplitTensors, Tokens
from glassrank.research.train.build import build_model
from glassrank.research.train.combine import select, select_models
from glassrank.research.train.prepared import Prepared
from glassrank.research.train.prepared_folders import save_prepared
from glassrank.research.train.validate import validate

TARGET = np.array([3.0, -1.0, 2.0, 0.0])


def closeness(scores: NDArray[np.float64]) -> float:
    return -round(float(np.abs(scores - TARGET).sum()), 6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(-9, 9), min_size=4, max_size=4), min_size=1, max_size=7))
def test_selection_walks_once_from_the_best(rows: list[list[int]]) -> None:
    scores = [np.array(row, np.float64) for row in rows]
    found = select(scores, closeness)
    order = sorted(range(len(scores)), key=lambda i: (-closeness(scores[i]), i))
    kept = order[:1]
    for number in order[1:]:
        with_it = np.mean([scores[i] for i in [*kept, number]], axis=0)
        if closeness(with_it) > closeness(np.mean([scores[i] for i in kept], axis=0)):
            kept.append(number)
    assert found.chosen == tuple(kept)
    assert found.value == pytest.approx(closeness(np.mean([scores[i] for i in kept], axis=0)))
    assert found.value >= max(found.alone)


def test_a_model_that_adds_nothing_stays_out() -> None:
    assert select([TARGET, TARGET, TARGET + 1], closeness).chosen == (0,)


def saved_models(folder: Path, prepared: Prepared) -> list[Path]:
    folders = []
    for seed in range(4):
        config = tiny_config(seed=seed, first_stage_weight=seed == 1)
        model = build_model(config, prepared)
        with torch.no_grad():
            weights = model.get_parameter("weights")  # (K,)
            # Likes what is alike, as if trained; of two, one errs where the other does not.
            error = torch.randn(len(weights), generator=torch.Generator().manual_seed(seed // 2))
            weights.copy_((-1) ** seed * error)
            weights[:2] = torch.tensor([0.0, 1.0])
        # Fewer words for one: each member reads as many as it was trained on.
        usage = Usage(4, 12 if seed else 5)
        save_model(folder / f"model{seed}", model, usage, prepared.words, "")
        folders.append(folder / f"model{seed}")
    return folders


def test_the_written_ensemble_has_the_quality_that_selection_saw(tmp_path: Path) -> None:
    prepared = replace(tiny_prepared(), test=tiny_prepared(seed=5).dev)
    folders = saved_models(tmp_path, prepared)
    lines: list[str] = []
    found = select_models(folders, prepared, tmp_path / "out", say=lines.append)
    saved = load_model(tmp_path / "out")
    assert isinstance(saved.model, Ensemble)
    assert len(saved.model.members) == len(found.chosen) > 1
    cpu = torch.device("cpu")
    docs = Tokens.of(prepared.docs, saved.usage.doc_length, cpu)
    dev = SplitTensors.of(prepared.dev, docs, saved.usage.query_length, cpu)
    again = validate(saved.model, dev, "RR@10")
    assert again.at_all == pytest.approx(found.value)
    assert again.depth == saved.usage.depth
    assert "on test queries" in lines[-1]
    assert "greedy forward selection" in (tmp_path / "out" / "card.md").read_text()


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    prepared = tiny_prepared()
    folders = saved_models(tmp_path, prepared)
    other = replace(prepared, words=[*prepared.words[:-1], "other"])
    with pytest.raises(InputError, match="another vocabulary"):
        select_models(folders, other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_it_kept_and_what_is_wrong(tmp_path: Path) -> None:
    prepared = tiny_prepared()
    save_prepared(tmp_path / "prepared", prepared)
    folders = [str(folder) for folder in saved_models(tmp_path, prepared)[:2]]
    options = ["--prepared", str(tmp_path / "prepared"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(
        make_app(), ["select", *folders, *options, "-m", "nDCG@10", "--json", "-q"]
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["measure"] == "nDCG@10" and set(report["members"]) <= set(folders)
    assert load_model(tmp_path / "out").vocabulary == prepared.words
    with pytest.raises(GlassrankError, match="is not a model folder"):
        CliRunner().invoke(
            make_app(), ["select", str(tmp_path / "nowhere"), *options], catch_exceptions=False
        )
