"""Which step of a run is kept: one that re-ranks well, whatever the first stage does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_run import tiny_config, tiny_prepared

from glassrank.research.train.loop import train
from glassrank.research.train.prepared import Prepared


def behind_a_perfect_first_stage() -> Prepared:
    """At depth 1 every model has the first stage's RR of 1, so no step is better than another."""
    prepared = tiny_prepared()
    grades = prepared.dev.grades.reshape(-1, 10)
    ranks = np.argsort(np.argsort(-grades, axis=1, kind="stable"), axis=1) + 1
    return replace(prepared, dev=replace(prepared.dev, ranks=ranks.ravel().astype(np.int32)))


@pytest.mark.parametrize("depth", ["all", "best"])
def test_steps_are_compared_where_the_model_ranks(depth: str, tmp_path: Path) -> None:
    config = tiny_config(
        seed=3,
        optimizer={"steps": 12, "rest": 0.005, "vectors": 0.001},
        validation={"every": 2, "patience": 2, "depth": depth},
    )
    trained = train(config, behind_a_perfect_first_stage(), tmp_path)
    history = trained.progress.history
    assert {row["value"] for row in history} == {1.0} and {row["depth"] for row in history} == {1}
    compared = [row["compared"] for row in history]
    assert max(compared) > compared[0] + 0.1 and len(compared) > 3  # it learns, and is let go on
    assert trained.progress.best == max(compared)
    assert trained.progress.best_step == history[int(np.argmax(compared))]["step"] > 2
