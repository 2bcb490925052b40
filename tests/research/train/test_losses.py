"""Each compute_loss against its formula, written out for one small batch."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glassrank.research.train import losses
from glassrank.research.train.config import LossConfig
from glassrank.research.train.teachers import Teacher, average_teachers
from glassrank.storage.mapped_arrays import Ragged

SCORES = torch.tensor([[2.0, 1.5, -1.0], [0.0, 1.0, 0.5]])
GRADES = torch.tensor([[3, 1, 0], [1, 0, 0]])
TEACHER = torch.tensor([[0.9, 0.3, 0.1], [0.7, 0.6, 0.2]])


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(x) for x in row)
    return [math.exp(x) / total for x in row]


def test_hinge() -> None:
    expected = (0.5 + 0 + 2 + 1.5) / 4
    assert losses.hinge(SCORES).item() == pytest.approx(expected)


def test_ranknet() -> None:
    differences = [-0.5, -3, 1, 0.5]
    expected = sum(math.log(1 + math.exp(d)) for d in differences) / 4
    assert losses.ranknet(SCORES).item() == pytest.approx(expected)


def test_pointwise() -> None:
    cells = [(2.0, 1), (1.5, 0), (-1.0, 0), (0.0, 1), (1.0, 0), (0.5, 0)]
    expected = -sum(math.log(1 / (1 + math.exp(-s if y else s))) for s, y in cells) / 6
    assert losses.pointwise(SCORES).item() == pytest.approx(expected)


def test_softmax_over_one_positive_and_its_negatives() -> None:
    expected = -sum(math.log(softmax(row)[0]) for row in SCORES.tolist()) / 2
    assert losses.softmax(SCORES).item() == pytest.approx(expected)


def test_custom_gains() -> None:
    """Gains 7, 1, 0 of 8 in the first row, all of the second row's on its positive."""
    first, second = softmax(SCORES[0].tolist()), softmax(SCORES[1].tolist())
    expected = -(7 / 8 * math.log(first[0]) + 1 / 8 * math.log(first[1]) + math.log(second[0])) / 2
    assert losses.custom_gains(SCORES, GRADES).item() == pytest.approx(expected)


def test_margin_mse() -> None:
    expected = ((0.5 - 0.6) ** 2 + (3 - 0.8) ** 2 + (-1 - 0.1) ** 2 + (-0.5 - 0.5) ** 2) / 4
    assert losses.margin_mse(SCORES, TEACHER).item() == pytest.approx(expected)


def test_kl_is_zero_only_for_the_teachers_own_shares() -> None:
    config = LossConfig(kind="kl", temperature=20.0, positive_bonus=2.0)
    wanted = 20 * TEACHER + 2 * (GRADES > 0)
    assert losses.compute_loss(config, wanted + 5, GRADES, TEACHER).item() == pytest.approx(
        0, abs=1e-6
    )
    assert losses.compute_loss(config, SCORES, GRADES, TEACHER).item() > 0.1


def test_a_standardized_teacher_has_no_scale() -> None:
    config = LossConfig("kl", temperature=1.5, positive_bonus=2.0, standardized=True)
    found = losses.compute_loss(config, SCORES, GRADES, TEACHER)
    stretched = losses.compute_loss(config, SCORES, GRADES, 40 * TEACHER - 3)
    assert found.item() == pytest.approx(stretched.item(), rel=1e-2)
    rows = losses.standardize(TEACHER)
    assert rows.mean(1).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert rows.pow(2).mean(1).tolist() == pytest.approx([1, 1], rel=1e-2)
    assert losses.standardize(torch.ones(1, 4)).tolist() == [[0, 0, 0, 0]]


def test_several_teachers_are_one_mean_of_equal_scales() -> None:
    def fixed(*values: float) -> Teacher:
        return lambda _: np.array(values, np.float32)

    docs = Ragged(np.array([0, 3, 5]), np.arange(5, dtype=np.int32))
    found = SimpleNamespace(docs=docs)
    first, second = fixed(1, 2, 3, 5, 7), fixed(300, 200, 100, -1, 1)
    mean = average_teachers([(first, 1.0), (second, 2.0)])(found)  # type: ignore[arg-type]
    step = math.sqrt(1.5)  # of three evenly spaced values, in deviations
    expected = [(-step + 2 * step) / 3, 0, (step - 2 * step) / 3, -1, 1]
    assert mean.tolist() == pytest.approx(expected, abs=1e-4)


def test_distillation_without_a_teacher_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match=r"candidates\.teacher"):
        losses.compute_loss(LossConfig(kind="kl"), SCORES, GRADES, None)
