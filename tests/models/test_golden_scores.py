"""Models keep giving the scores they gave when they were equal to the authors' code."""

import json

import pytest
from make_golden_scores import GOLDEN, golden_scores
from model_cases import SMALL, SMALL_PIECES

from glassrank.models import MODELS

NAMES = sorted(SMALL | SMALL_PIECES)
EXPECTED = json.loads(GOLDEN.read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_as_they_were(name: str) -> None:
    assert golden_scores(name) == pytest.approx(EXPECTED[name], rel=1e-4, abs=2e-6)


def test_every_model_has_golden_scores() -> None:
    assert EXPECTED.keys() == set(NAMES) == MODELS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_golden_scores_differ(name: str) -> None:
    """A dead model would keep its scores whatever happened to it."""
    assert len(set(EXPECTED[name])) == 3
