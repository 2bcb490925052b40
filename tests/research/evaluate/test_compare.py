"""Systems beside a baseline."""

import numpy as np
import pytest

from glassrank.errors import InputError
from glassrank.research.evaluate import Evaluation, compare, compare_all, correct, paired_t_test
from glassrank.research.evaluate.measures import Floats


def evaluation(seed: int, gain: float = 0.0, queries: int = 40) -> Evaluation:
    rng, noise = np.random.default_rng(0), np.random.default_rng(seed)

    def values() -> Floats:
        return rng.random(queries) + noise.normal(gain, 0.05, queries)

    per_query = {"RR@10": values(), "nDCG@10": values()}
    mean = {name: float(v.mean()) for name, v in per_query.items()}
    return Evaluation(tuple(map(str, range(queries))), mean, per_query)


def test_each_measure_is_tested() -> None:
    system, baseline = evaluation(1, gain=0.1), evaluation(2)
    found = compare(system, baseline)["RR@10"]
    expected = paired_t_test(system.per_query["RR@10"], baseline.per_query["RR@10"])
    assert found.difference == pytest.approx(found.system - found.baseline)
    assert (found.statistic, found.p_value) == (expected.statistic, expected.p_value)
    assert [(claim.margin, claim.holds) for claim in found.non_inferiority] == [
        (0.02, True),
        (0.05, True),
    ]


def test_p_values_are_corrected_over_all_systems_and_measures() -> None:
    systems = {"tk": evaluation(1, 0.01), "knrm": evaluation(3, 0.02)}
    found = compare_all(systems, evaluation(2), correction="bonferroni")
    assert [(row.system_name, row.measure) for row in found] == [
        ("tk", "RR@10"),
        ("tk", "nDCG@10"),
        ("knrm", "RR@10"),
        ("knrm", "nDCG@10"),
    ]
    p_values = [row.p_value for row in found]
    assert [row.corrected_p for row in found] == correct(p_values, "bonferroni").tolist()


def test_the_permutation_test_can_be_asked_for() -> None:
    found = compare(evaluation(1, gain=0.1), evaluation(2), test="permutation")["RR@10"]
    assert found.statistic == found.difference
    assert found.p_value == pytest.approx(1 / 10_001)


def test_evaluations_of_different_queries_are_refused() -> None:
    with pytest.raises(InputError, match="same judgments"):
        compare(evaluation(1, queries=5), evaluation(2, queries=6))


def test_measures_the_baseline_lacks_are_refused() -> None:
    baseline = evaluation(2)
    baseline.per_query.pop("nDCG@10")
    with pytest.raises(InputError, match="the baseline was not evaluated with nDCG@10"):
        compare(evaluation(1), baseline)


def test_unknown_tests_are_explained() -> None:
    with pytest.raises(InputError, match="expected t or permutation"):
        compare(evaluation(1), evaluation(2), test="wilcoxon")  # type: ignore[arg-type]
