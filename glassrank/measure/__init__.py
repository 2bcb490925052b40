"""Measures at every cutoff and re-ranking depth, and whether differences are more than chance."""

from glassrank.measure.evaluate import (
    DepthCurve,
    Evaluation,
    best_depth,
    evaluate,
    evaluate_at_cutoffs,
    evaluate_at_depths,
)
from glassrank.measure.judged import Judged
from glassrank.measure.measures import Measure
from glassrank.measure.significance import (
    Comparison,
    NonInferiority,
    PairedTest,
    compare,
    compare_all,
    correct,
    non_inferiority,
    paired_t_test,
    permutation_test,
)

__all__ = [
    "Comparison",
    "DepthCurve",
    "Evaluation",
    "Judged",
    "Measure",
    "NonInferiority",
    "PairedTest",
    "best_depth",
    "compare",
    "compare_all",
    "correct",
    "evaluate",
    "evaluate_at_cutoffs",
    "evaluate_at_depths",
    "non_inferiority",
    "paired_t_test",
    "permutation_test",
]
