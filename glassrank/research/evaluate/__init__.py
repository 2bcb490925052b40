"""Measures at every cutoff and re-ranking depth, and whether differences are more than chance."""

from glassrank.research.evaluate.evaluate import (
    DepthCurve,
    Evaluation,
    best_depth,
    evaluate,
    evaluate_at_cutoffs,
    evaluate_at_depths,
)
from glassrank.research.evaluate.judged import Judged
from glassrank.research.evaluate.measures import Measure
from glassrank.research.evaluate.significance import (
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
