"""The loop as a whole: it learns, keeps the best, and goes on after a kill with the same result."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_run import tiny_config, tiny_prepared

from glassrank.errors import InputError
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import fingerprint
from glassrank.research.train.build import build_model
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import make_example, read_config
from glassrank.research.train.loop import TrainingResult, is_stuck, train
from glassrank.research.train.prepared import Prepared


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with no other settings."""
    return tmp_path_factory.mktemp("plain")


@pytest.fixture(scope="module")
def plain(out: Path) -> TrainingResult:
    return train(tiny_config(), tiny_prepared(), out)


def test_it_learns_to_rank(plain: TrainingResult) -> None:
    assert plain.final.first_stage < 0.4
    assert plain.final.value > plain.final.first_stage + 0.2


@pytest.mark.long
def test_a_run_that_was_stopped_ends_with_the_same_weights(tmp_path: Path) -> None:
    config = tiny_config(
        model="tk",
        config={"contextual": {"layers": 1, "heads": 2, "attention_size": 4, "feed_forward": 8}},
    )
    whole = train(config, tiny_prepared(), tmp_path / "whole")
    for stop in (7, 25, 50):  # between validations: what came after the last one is done again
        train_until(config, tmp_path / "cut", stop)
    again = train(config, tiny_prepared(), tmp_path / "cut")
    assert fingerprint(again.model) == fingerprint(whole.model)
    assert again.progress.history == whole.progress.history


def train_until(config: TrainConfig, out: Path, stop: int) -> None:
    def interrupt(step: int) -> bool:
        if step == stop:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        train(config, tiny_prepared(), out, should_stop=interrupt)


def test_the_folder_has_model_card_log_and_result(plain: TrainingResult, out: Path) -> None:
    saved = load_model(out / "best")
    assert saved.usage.depth == plain.final.depth < 0.9 * tiny_config().candidates.dev_depth
    assert "Trained on tiny" in (out / "best" / "card.md").read_text()
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in log] == [20, 40, 60]
    assert json.loads((out / "result.json").read_text())["value"] == plain.final.value


def test_it_stops_early_without_gain(tmp_path: Path) -> None:
    config = tiny_config(
        optimizer={"steps": 500, "rest": 0.0, "vectors": 0.0},
        validation={"every": 5, "patience": 3},
    )
    assert train(config, tiny_prepared(), tmp_path).progress.step == 5 + 3 * 5


@pytest.mark.parametrize("kind", ["ranknet", "pointwise", "softmax", "gains", "margin_mse", "kl"])
def test_every_loss_trains(kind: str, tmp_path: Path) -> None:
    prepared = tiny_prepared(teacher=True)
    trained = train(tiny_config(loss={"kind": kind, "temperature": 5.0}), prepared, tmp_path)
    assert trained.final.value > trained.final.first_stage + 0.1


def test_a_mixed_in_first_stage_is_learnt_and_kept(tmp_path: Path) -> None:
    trained = train(tiny_config(first_stage_weight=True), tiny_prepared(), tmp_path)
    saved = load_model(tmp_path / "best").model
    assert saved.first_stage_weight is not None
    assert saved.first_stage_weight.item() != pytest.approx(0.1)
    assert torch.equal(saved.first_stage_weight, trained.model.first_stage_weight)  # type: ignore[arg-type]


def test_frozen_vectors_stay(tmp_path: Path) -> None:
    prepared = tiny_prepared()
    trained = train(tiny_config(vectors={"train": False}), prepared, tmp_path)
    assert trained.model.words is not None
    assert torch.equal(trained.model.words.embedding.weight, torch.from_numpy(prepared.vectors))


def test_a_best_depth_near_the_deepest_tried_is_no_limit(tmp_path: Path) -> None:
    config = tiny_config(candidates={"dev_depth": 2})
    trained = train(config, tiny_prepared(), tmp_path)
    assert trained.final.depth >= 0.9 * 2
    assert load_model(tmp_path / "best").usage.depth is None


def test_a_fixed_first_stage_weight_takes_no_part_in_training(
    plain: TrainingResult, tmp_path: Path
) -> None:
    mixed = train(tiny_config(fixed_first_stage_weight=0.7), tiny_prepared(), tmp_path / "mixed")
    assert plain.progress.history == mixed.progress.history
    saved = load_model(tmp_path / "mixed" / "best").model
    assert saved.first_stage_weight is not None
    assert saved.first_stage_weight.item() == pytest.approx(0.7)
    saved.first_stage_weight = None
    assert fingerprint(saved) == fingerprint(plain.model)


def test_learned_and_fixed_weights_exclude_each_other() -> None:
    with pytest.raises(InputError, match="not both"):
        tiny_config(first_stage_weight=True, fixed_first_stage_weight=0.5)


@pytest.mark.parametrize(("vectors", "close"), [("float16", 1e-3), ("int8", 1e-2)])
def test_word_vectors_are_saved_small(
    plain: TrainingResult, tmp_path: Path, vectors: str, close: float
) -> None:
    train(tiny_config(vectors={"saved": vectors}), tiny_prepared(), tmp_path / "small")
    assert plain.model.words is not None
    own = plain.model.words.embedding.weight
    saved = load_model(tmp_path / "small" / "best").model
    assert saved.words is not None
    small = saved.words.embedding.weight
    largest = own.abs().amax(1, keepdim=True)
    assert ((small - own).abs() <= close * largest).all() and not torch.equal(small, own)


def test_bf16_products_learn_nearly_the_same(tmp_path: Path) -> None:
    small = {"layers": 1, "heads": 2, "attention_size": 4, "feed_forward": 8}
    losses = []
    for precision in ("float32", "bf16"):
        rates = {"steps": 20, "rest": 0.05, "vectors": 0.01, "precision": precision}
        config = tiny_config(model="tk", config={"contextual": small}, optimizer=rates)
        trained = train(config, tiny_prepared(), tmp_path / precision)
        losses.append(trained.progress.history[-1]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=0.1) and losses[0] != losses[1]


def test_a_model_outside_the_package_is_trained_from_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's file names it, which is all the trust it needs; its folder alone has none."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "models")
    name = "outside_model:SoftTF"
    config = tiny_config(model=name)
    trained = train(config, tiny_prepared(), tmp_path)
    assert trained.final.value > trained.final.first_stage
    with pytest.raises(InputError, match="not run unless you ask for it"):
        load_model(tmp_path / "best")
    saved = load_model(tmp_path / "best", trusted=[name])
    assert fingerprint(saved.model) == fingerprint(trained.model)
    start = tiny_config(model=name, start={"model": str(tmp_path / "best")})
    again = build_model(start, tiny_prepared())
    assert fingerprint(again) == fingerprint(saved.model)
    other = tiny_config(start={"model": str(tmp_path / "best")})
    with pytest.raises(InputError, match="not run unless you ask for it"):
        build_model(other, tiny_prepared())


def test_a_file_that_names_no_module_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(make_example("tk").replace('"tk"', '"no_such:Model"', 1))
    with pytest.raises(InputError, match="model: no_such:Model cannot be imported"):
        read_config(tmp_path / "run.toml")


def test_probabilities_are_fitted_on_dev_queries_when_it_ends(tmp_path: Path) -> None:
    config = tiny_config(
        optimizer={"steps": 60, "rest": 0.05, "vectors": 0.01}, fixed_first_stage_weight=0.1
    )
    train(config, tiny_prepared(), tmp_path)
    usage = load_model(tmp_path / "best").usage
    assert usage.calibration is not None and usage.calibration.slope > 0
    assert "Brier score" in (tmp_path / "best" / "card.md").read_text("utf-8")


def fewest_matches_wanted() -> Prepared:
    """Of each query's ten candidates, nine have all its words: relevant is the tenth."""
    prepared = tiny_prepared()
    grades = prepared.train.grades.reshape(-1, 10).argmax(1)
    wanted = np.full((len(grades), 10), 1, np.int32)
    wanted[np.arange(len(grades)), grades] = -1  # what shares words with the query is not relevant
    return replace(prepared, train=replace(prepared.train, grades=wanted.ravel()))


@pytest.mark.parametrize("last_relu", [True, False])
def test_a_loss_that_stands_still_is_told_and_duet_need_not(
    last_relu: bool, tmp_path: Path
) -> None:
    """The original's last ReLU gives zero for all as soon as less must mean more."""
    sizes = {"hidden": 16, "query_length": 4, "doc_length": 12, "doc_pool": 5, "dropout": 0.0}
    config = tiny_config(
        model="duet",
        config={**sizes, "last_relu": last_relu},
        loss={"kind": "softmax"},
        optimizer={"steps": 40, "rest": 0.01, "vectors": 0.0},
        validation={"every": 5},
    )
    lines: list[str] = []
    trained = train(config, fewest_matches_wanted(), tmp_path, say=lines.append)
    told = [line for line in lines if "the loss is stuck at" in line]
    assert len(told) == last_relu
    losses = [row["loss"] for row in trained.progress.history]
    assert (losses[-1] < 0.8 * losses[0]) != last_relu


def test_a_loss_that_was_nan_before_a_resume_is_not_compared() -> None:
    lost: list[dict[str, float | None]] = [{"loss": None}]
    assert not is_stuck([*lost, {"loss": 0.5}, {"loss": 0.5}])
    assert is_stuck([*lost, {"loss": 0.5}, {"loss": 0.5}, {"loss": 0.5}])
