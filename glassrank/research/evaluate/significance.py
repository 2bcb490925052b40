"""Is the difference between two systems more than chance? Paired tests over queries; `correct`
adjusts p values when many tests are made.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from glassrank.errors import InputError
from glassrank.research.evaluate.evaluate import Evaluation
from glassrank.research.evaluate.measures import Floats

Correction = Literal["none", "bonferroni", "holm", "bh"]

EXACT = 16
"""With up to this many differences all 2**16 sign flips are tried, beyond it a sample."""

_ALPHA = 0.05

CELLS = 1 << 22
"""Sign flips are made for this many (flip, query) cells at a time: bounds memory."""


@dataclass(frozen=True, slots=True)
class PairedTest:
    """`difference` is the mean of system minus baseline; `statistic` is t, or that mean."""

    difference: float
    statistic: float
    p_value: float


@dataclass(frozen=True, slots=True)
class NonInferiority:
    """Whether a loss of `delta` or more can be ruled out; `margin` is delta's share."""

    margin: float
    delta: float
    p_value: float
    holds: bool


def paired_t_test(system: ArrayLike, baseline: ArrayLike) -> PairedTest:
    """Two-sided. One query, or no difference on any, is no evidence: p is 1.

    >>> paired_t_test([0.5, 0.5], [0.5, 0.5]).p_value
    1.0
    """
    differences = _differences(system, baseline)  # (Q,)
    t = _t_statistic(differences)
    return PairedTest(float(differences.mean()), t, 2 * _t_above(abs(t), len(differences)))


def permutation_test(
    system: ArrayLike, baseline: ArrayLike, permutations: int = 10_000
) -> PairedTest:
    """Two-sided: how often does a mean as far from 0 arise when signs are a coin's?

    Exact when few queries differ; otherwise from so many random flips, the same in every call.
    """
    all_differences = _differences(system, baseline)
    # Flipping a zero changes nothing, and a measure such as RR@10 is the same for most queries.
    differences = all_differences[all_differences != 0]  # (n,)
    total = differences.sum()
    # Sums that are equal on paper may differ in their last bits.
    bar = abs(total) - 1e-12 * np.abs(differences).sum()
    n = len(differences)
    exact = n <= EXACT
    as_far = tried = 0
    for flips in _all_flips(n) if exact else _drawn_flips(n, permutations):
        sums = total - 2 * (flips @ differences)  # (flips,)
        as_far += int((np.abs(sums) >= bar).sum())
        tried += len(sums)
    # A sample counts what was observed as one more draw, so that p is never 0.
    p_value = as_far / tried if exact else (as_far + 1) / (tried + 1)
    mean = float(all_differences.mean())
    return PairedTest(mean, mean, p_value)


def non_inferiority(system: ArrayLike, baseline: ArrayLike, margin: float = 0.05) -> NonInferiority:
    """Rejects, by a one-sided paired t-test, that the system is worse by more than a margin.

    H0': mean(baseline) - mean(system) > delta, with delta = margin * mean(baseline), as in the
    MORES paper (which takes margins of 2% and 5%).

    >>> non_inferiority([0.50, 0.41, 0.32], [0.51, 0.40, 0.32], margin=0.05).holds
    True
    """
    if not 0 <= margin < 1:
        raise InputError(f"margin must be a share from 0 to 1, such as 0.05, found {margin}")
    differences = _differences(system, baseline)
    delta = margin * float(np.mean(np.asarray(baseline, np.float64)))
    p_value = _t_above(_t_statistic(differences + delta), len(differences))
    return NonInferiority(margin, delta, p_value, p_value < _ALPHA)


def correct(p_values: Sequence[float], method: Correction = "holm") -> Floats:
    """p values adjusted for their number, to be compared with the usual alpha.

    `bonferroni` and `holm` bound the chance of one false discovery (Holm always as powerful or
    more), `bh` (Benjamini-Hochberg) the share of false ones among the discoveries.

    >>> correct([0.01, 0.04, 0.03], "holm").tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)  # (m,)
    m = len(p)
    order = np.argsort(p)
    place = np.arange(1, m + 1)
    adjusted = np.empty(m)
    match method:
        case "none":
            adjusted = p
        case "bonferroni":
            adjusted = p * m
        case "holm":  # the smallest times m, the next times m - 1, never below the one before
            adjusted[order] = np.maximum.accumulate(p[order] * (m - place + 1))
        case "bh":  # the k-th smallest times m / k, never above the one after
            adjusted[order] = np.minimum.accumulate((p[order] * m / place)[::-1])[::-1]
        case _:
            raise InputError(
                f"correction {method!r} is not known; expected none, bonferroni, holm or bh"
            )
    return np.minimum(adjusted, 1)


def _differences(system: ArrayLike, baseline: ArrayLike) -> Floats:
    a, b = np.asarray(system, np.float64), np.asarray(baseline, np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise InputError(
            "a paired test needs one value for each query from both systems, "
            f"found shapes {a.shape} and {b.shape}"
        )
    return a - b


def _t_statistic(values: Floats) -> float:
    """mean / (deviation / sqrt(n)); 0, no evidence, where all is 0 or there is one value."""
    n, mean = len(values), float(values.mean())
    if n < 2 or not values.any():
        return 0.0
    error = float(values.std(ddof=1)) / n**0.5
    return mean / error if error > 0 else float(np.copysign(np.inf, mean))


def _t_above(t: float, n: int) -> float:
    """The chance of a statistic of `t` or more, from n values: by Student's distribution."""
    freedom = max(n - 1, 1)
    if math.isinf(t):
        return float(t < 0)
    tail = _beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return tail if t >= 0 else 1 - tail


def _beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function, by its continued fraction."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - _beta(b, a, 1 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(front + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))  # Lentz's way, from the front
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            c, d = 1 + term / c, 1 / (1 + term * d)
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction


def _all_flips(n: int) -> Iterator[Floats]:
    numbers = np.arange(2**n)[:, None]
    yield (numbers >> np.arange(n) & 1).astype(np.float64)  # (2**n, n)


def _drawn_flips(n: int, count: int) -> Iterator[Floats]:
    rng = np.random.default_rng(0)
    step = max(1, CELLS // n)
    for start in range(0, count, step):
        yield rng.integers(0, 2, (min(step, count - start), n), np.int8).astype(np.float64)


Test = Literal["t", "permutation"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of one system beside the baseline's.

    `corrected_p` is `p_value` after correction over all comparisons made together.
    """

    system_name: str
    measure: str
    system: float
    baseline: float
    difference: float
    statistic: float
    p_value: float
    corrected_p: float
    non_inferiority: tuple[NonInferiority, ...]


def compare(
    system: Evaluation,
    baseline: Evaluation,
    test: Test = "t",
    correction: Correction = "holm",
    margins: Sequence[float] = (0.02, 0.05),
) -> dict[str, Comparison]:
    """Each measure of the two evaluations, which must be of the same queries."""
    rows = compare_all({"": system}, baseline, test, correction, margins)
    return {row.measure: row for row in rows}


def compare_all(
    systems: Mapping[str, Evaluation],
    baseline: Evaluation,
    test: Test = "t",
    correction: Correction = "holm",
    margins: Sequence[float] = (0.02, 0.05),
) -> list[Comparison]:
    """Each measure of each system, in that order, corrected over all of them together.

    Non-inferiority claims are not corrected: each margin is its own claim, as in the MORES paper.
    """
    pairs = [(name, measure) for name, system in systems.items() for measure in system.mean]
    results = [_test(systems[name], baseline, measure, test) for name, measure in pairs]
    corrected = correct([result.p_value for result in results], correction)
    return [
        Comparison(
            system_name=name,
            measure=measure,
            system=systems[name].mean[measure],
            baseline=baseline.mean[measure],
            difference=result.difference,
            statistic=result.statistic,
            p_value=result.p_value,
            corrected_p=float(p),
            non_inferiority=tuple(
                non_inferiority(
                    systems[name].per_query[measure], baseline.per_query[measure], margin
                )
                for margin in margins
            ),
        )
        for (name, measure), result, p in zip(pairs, results, corrected, strict=True)
    ]


def _test(system: Evaluation, baseline: Evaluation, measure: str, test: Test) -> PairedTest:
    if system.query_ids != baseline.query_ids:
        raise InputError(
            "the evaluations are of different queries; evaluate both runs with the same judgments"
        )
    if measure not in baseline.per_query:
        raise InputError(
            f"the baseline was not evaluated with {measure}; evaluate both with the same measures"
        )
    tests = {"t": paired_t_test, "permutation": permutation_test}
    if test not in tests:
        raise InputError(f"test {test!r} is not known; expected t or permutation")
    return tests[test](system.per_query[measure], baseline.per_query[measure])
