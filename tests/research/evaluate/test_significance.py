"""Tests and corrections against scipy and against slow formulas."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from glassrank.errors import InputError
from glassrank.research.evaluate import (
    PairedTest,
    correct,
    non_inferiority,
    paired_t_test,
    permutation_test,
    significance,
)
from glassrank.research.evaluate.measures import Floats

PairedTestFunction = Callable[[ArrayLike, ArrayLike], PairedTest]


def two_systems(queries: int, gain: float = 0.03, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    baseline = rng.random(queries)
    return np.clip(baseline + rng.normal(gain, 0.1, queries), 0, 1), baseline


@pytest.mark.parametrize("queries", [2, 5, 200])
def test_t_test_is_scipys(queries: int) -> None:
    from scipy import stats

    system, baseline = two_systems(queries)
    found, expected = paired_t_test(system, baseline), stats.ttest_rel(system, baseline)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.difference == pytest.approx(system.mean() - baseline.mean())


@pytest.mark.parametrize("test", [paired_t_test, permutation_test])
def test_no_difference_is_no_evidence(test: PairedTestFunction) -> None:
    values = np.array([0.1, 0.2, 0.3])
    assert test(values, values).p_value == 1
    assert test(values, values).difference == 0


@pytest.mark.parametrize("test", [paired_t_test, permutation_test])
def test_one_query_is_no_evidence(test: PairedTestFunction) -> None:
    assert test([0.9], [0.1]).p_value == 1


def test_the_same_gain_on_every_query_is_beyond_doubt_for_t() -> None:
    found = paired_t_test([0.75, 0.5], [0.5, 0.25])
    assert (found.statistic, found.p_value) == (np.inf, 0)


@pytest.mark.parametrize("test", [paired_t_test, permutation_test, non_inferiority])
def test_different_queries_cannot_be_paired(test: Callable[[ArrayLike, ArrayLike], object]) -> None:
    with pytest.raises(InputError, match="one value for each query from both"):
        test([0.1, 0.2], [0.1])


def test_permutation_test_tries_every_flip_of_few() -> None:
    system, baseline = two_systems(8)
    d = system - baseline
    means = [np.mean(d * signs) for signs in product([1, -1], repeat=8)]
    expected = np.mean([abs(mean) >= abs(d.mean()) - 1e-12 for mean in means])
    assert permutation_test(system, baseline).p_value == expected


def test_exact_permutation_test_is_scipys() -> None:
    from scipy import stats

    system, baseline = two_systems(10, seed=3)
    expected = stats.permutation_test(
        (system, baseline),
        lambda a, b: float(np.mean(a - b)),
        permutation_type="samples",
        n_resamples=np.inf,
    )
    assert permutation_test(system, baseline).p_value == pytest.approx(expected.pvalue)


def test_queries_without_difference_leave_the_exact_test_exact() -> None:
    system, baseline = two_systems(8)
    zeros = np.zeros(50)
    few, many = (
        permutation_test(system, baseline),
        permutation_test(np.r_[system, zeros], np.r_[baseline, zeros]),
    )
    assert many.p_value == few.p_value


def test_sampled_permutation_test_agrees_with_the_t_test() -> None:
    system, baseline = two_systems(300, gain=0.01)
    found = permutation_test(system, baseline, permutations=20_000)
    assert found.p_value == pytest.approx(paired_t_test(system, baseline).p_value, abs=0.01)
    assert found == permutation_test(system, baseline, permutations=20_000)


def test_sampled_permutation_test_never_says_zero() -> None:
    system, baseline = two_systems(300, gain=0.5)
    assert permutation_test(system, baseline, permutations=999).p_value == 1 / 1000


def test_permutations_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    system, baseline = two_systems(40, gain=0.02)
    whole = permutation_test(system, baseline, permutations=5000)
    monkeypatch.setattr(significance, "CELLS", 1000)
    parts = permutation_test(system, baseline, permutations=5000)
    assert parts.p_value == pytest.approx(whole.p_value, abs=0.02)


def test_non_inferiority_is_scipys_one_sided_test_of_the_shifted_difference() -> None:
    from scipy import stats

    system, baseline = two_systems(50, gain=0.0)
    found = non_inferiority(system, baseline, margin=0.02)
    delta = 0.02 * baseline.mean()
    expected = stats.ttest_1samp(system - baseline + delta, 0, alternative="greater")
    assert found.delta == pytest.approx(delta)
    assert found.p_value == pytest.approx(expected.pvalue)


def test_a_small_steady_loss_is_non_inferior_at_the_wide_margin_only() -> None:
    rng = np.random.default_rng(1)
    baseline = rng.uniform(0.3, 0.5, 500)
    system = baseline * 0.97 + rng.normal(0, 0.02, 500)  # 3% worse
    assert not non_inferiority(system, baseline, margin=0.02).holds
    assert non_inferiority(system, baseline, margin=0.05).holds


def test_a_system_equal_on_every_query_is_non_inferior() -> None:
    assert non_inferiority([0.5, 0.25], [0.5, 0.25], margin=0.02).holds


def test_nothing_is_proven_by_one_query() -> None:
    assert not non_inferiority([0.5], [0.5], margin=0.05).holds


def test_margins_are_shares() -> None:
    with pytest.raises(InputError, match=r"such as 0\.05, found 5"):
        non_inferiority([0.5], [0.5], margin=5)


P_VALUES = st.lists(st.floats(0, 1), max_size=12)


@given(P_VALUES)
@settings(deadline=None)
def test_benjamini_hochberg_is_scipys(p_values: list[float]) -> None:
    from scipy import stats

    expected = stats.false_discovery_control(p_values) if p_values else []
    assert correct(p_values, "bh") == pytest.approx(np.asarray(expected))


@given(P_VALUES)
@settings(deadline=None)
def test_holm_is_its_definition(p_values: list[float]) -> None:
    m = len(p_values)
    ascending = sorted(p_values)
    for p, adjusted in zip(p_values, correct(p_values, "holm"), strict=True):
        place = max(k for k in range(m) if ascending[k] == p)
        expected = max(min(1.0, (m - k) * ascending[k]) for k in range(place + 1))
        assert adjusted == pytest.approx(expected)


def test_bonferroni_multiplies_by_the_number_of_tests() -> None:
    assert correct([0.01, 0.2, 0.5], "bonferroni").tolist() == pytest.approx([0.03, 0.6, 1])


def test_no_correction_changes_nothing() -> None:
    assert correct([0.01, 0.2], "none").tolist() == [0.01, 0.2]


def test_unknown_corrections_are_explained() -> None:
    with pytest.raises(InputError, match="expected none, bonferroni, holm or bh"):
        correct([0.1], "sidak")  # type: ignore[arg-type]
