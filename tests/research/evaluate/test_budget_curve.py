"""Quality against time: depths and milliseconds there and back, and the depth that is used."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_runs import RunDict, cases

from glassrank.errors import InputError
from glassrank.research.evaluate import evaluate
from glassrank.research.evaluate.budget_curve import Speed, evaluate_by_depth, make_time_curves
from glassrank.types import Qrels, Run

speeds = st.builds(Speed, st.floats(0.001, 1000), st.floats(0, 100))


@given(speed=speeds, depth=st.integers(0, 2000))
def test_the_time_of_a_depth_allows_that_depth_and_no_more(speed: Speed, depth: int) -> None:
    assert speed.depth(speed.ms(depth)) == depth


@given(speed=speeds, ms=st.floats(0, 1000))
def test_what_is_reached_in_a_time_takes_no_longer(speed: Speed, ms: float) -> None:
    depth = speed.depth(ms)
    assert speed.ms(depth) <= ms + 1e-6
    assert speed.ms(depth + 1) > ms - 1e-6


def test_time_that_only_encodes_the_query_leaves_the_first_stage() -> None:
    speed = Speed(docs_per_ms=10, query_ms=5)
    values = {"RR@10": np.array([0.1, 0.1, 0.9])}
    assert make_time_curves(values, speed)["RR@10"].at_ms([0, 4, 5, 6]).tolist() == [
        0.1,
        0.1,
        0.1,
        0.9,
    ]


def test_more_time_than_all_candidates_take_changes_nothing() -> None:
    curve = make_time_curves({"AP": np.array([0.1, 0.1, 0.3])}, Speed(1, 2))["AP"]
    assert curve.all_ms == 4
    assert curve.at_ms([4, 5, 1e9]).tolist() == [0.3, 0.3, 0.3]
    assert curve.depth([4, 5, 1e9]).tolist() == [2, 2, 2]


def test_speed_is_the_median_of_what_was_measured() -> None:
    speed = Speed.median(docs=[100, 100, 50], scoring_ms=[10, 1000, 5], query_ms=[1, 2, 90])
    assert speed == Speed(docs_per_ms=10, query_ms=2)


@pytest.mark.parametrize(("docs", "query"), [(0, 1), (-1, 1), (1, -1), (float("nan"), 1)])
def test_a_speed_that_makes_no_sense(docs: float, query: float) -> None:
    with pytest.raises(InputError, match="documents per millisecond"):
        Speed(docs, query)


def test_the_depth_that_is_best_on_dev_is_used_whatever_it_brings() -> None:
    here = {"RR@10": np.array([0.2, 0.2, 0.5, 0.3])}
    dev = {"RR@10": np.array([0.2, 0.2, 0.3, 0.4])}
    chosen = make_time_curves(here, Speed(1, 0), dev)["RR@10"]
    assert (chosen.chosen, chosen.chosen_value, chosen.chosen_ms) == (3, 0.3, 3)


def test_a_model_that_never_helps_is_best_left_out() -> None:
    curve = make_time_curves({"RR@10": np.array([0.5, 0.5, 0.3])}, Speed(1, 7))["RR@10"]
    assert (curve.chosen, curve.chosen_ms) == (0, 0)


def test_dev_queries_with_more_candidates_choose_among_the_depths_there_are() -> None:
    here = {"RR@10": np.array([0.2, 0.2, 0.3])}
    dev = {"RR@10": np.array([0.2, 0.2, 0.3, 0.4, 0.9])}
    assert make_time_curves(here, Speed(1, 0), dev)["RR@10"].chosen == 2


@given(first=cases(), second=cases())
@settings(max_examples=20, deadline=None)
def test_depth_zero_is_the_first_stage_alone(
    first: tuple[RunDict, Qrels], second: tuple[RunDict, Qrels]
) -> None:
    run, qrels = Run.from_dict(first[0]), first[1]
    measures = ["RR@10", "R@10", "nDCG@10"]
    values = evaluate_by_depth(run, Run.from_dict(second[0]), qrels, measures, 5)
    alone = evaluate(run, qrels, measures).mean
    for name in measures:
        assert values[name].shape == (6,)
        # One document alone has no order to change.
        assert values[name][:2] == pytest.approx([alone[name], alone[name]])
