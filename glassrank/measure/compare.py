"""Systems against a baseline, measure by measure, with p values corrected over all comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from glassrank.errors import InputError
from glassrank.measure.evaluate import Evaluation
from glassrank.measure.significance import (
    Correction,
    NonInferiority,
    PairedTest,
    correct,
    non_inferiority,
    paired_t_test,
    permutation_test,
)

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
