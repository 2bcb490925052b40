"""Measures of a whole run, at their own cutoff or at many cutoffs at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from glassrank.errors import InputError
from glassrank.measure.judged import Judged
from glassrank.measure.measures import NO_CUTOFF, Floats, Ints, Measure, divide, gains, norm, value
from glassrank.types import Qrels, Run


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Values by measure name. Means are over all judged queries; a query not found counts 0."""

    query_ids: tuple[str, ...]
    mean: dict[str, float]
    per_query: dict[str, Floats]  # each (Q,), aligned with query_ids


def evaluate(
    run: Run, qrels: Qrels, measures: Sequence[str | Measure], judged_only: bool = False
) -> Evaluation:
    """The measures of `run`; `judged_only` leaves documents without judgment out of the ranking.

    >>> run = Run.from_dict({"q1": {"a": 2.0, "b": 1.0}})
    >>> result = evaluate(run, {"q1": {"b": 1}, "q2": {"c": 1}}, ["RR@10", "R@1"])
    >>> result.mean
    {'RR@10': 0.25, 'R@1': 0.0}
    >>> result.query_ids, result.per_query["RR@10"].tolist()
    (('q1', 'q2'), [0.5, 0.0])
    """
    judged = Judged.join(run, qrels, judged_only)
    per_query = {
        str(measure): value(measure, judged.ranks, judged.grades, own_norm(measure, judged))
        for measure in map(Measure.parse, measures)
    }
    mean = {name: float(values.mean()) for name, values in per_query.items()}
    return Evaluation(judged.query_ids, mean, per_query)


def own_norm(measure: Measure, judged: Judged) -> Floats:
    """The norm at the measure's own cutoff."""  # (Q,) or (1,)
    by: Floats = norm(measure, judged, np.array([measure.cutoff or NO_CUTOFF]))[0]
    return by


def evaluate_at_cutoffs(
    run: Run,
    qrels: Qrels,
    measures: Sequence[str | Measure],
    cutoffs: ArrayLike,
    judged_only: bool = False,
) -> dict[str, Floats]:
    """Each measure (given without a cutoff) at every cutoff: arrays (cutoffs, queries).

    Queries stand in the order of `qrels`.

    >>> run = Run.from_dict({"q": {"a": 2.0, "b": 1.0}})
    >>> evaluate_at_cutoffs(run, {"q": {"b": 1}}, ["P"], [1, 2, 4])["P"].tolist()
    [[0.0], [0.5], [0.25]]
    """
    wanted = as_counts(cutoffs, "cutoffs")
    judged = Judged.join(run, qrels, judged_only)
    return {
        str(measure): _at_cutoffs(measure, judged, wanted)
        for measure in map(Measure.parse, measures)
    }


def _at_cutoffs(measure: Measure, judged: Judged, cutoffs: Ints) -> Floats:
    if measure.cutoff is not None:
        raise InputError(f"{measure} has a cutoff already; expected a measure without one")
    # Each gain is put at its rank, so that one cumulative sum holds the sums at all cutoffs.
    deepest = min(cutoffs.max(), judged.retrieved.max())  # beyond it the sums stay as they are
    within = judged.ranks <= deepest  # (Q, H)
    at_rank = np.zeros((len(judged.query_ids), deepest + 1))  # (Q, 1 + deepest)
    rows, _ = np.nonzero(within)
    columns = judged.ranks[within].astype(np.int64)
    at_rank[rows, columns] = gains(measure, judged.ranks, judged.grades)[within]
    sums = np.cumsum(at_rank, axis=1)[:, np.minimum(cutoffs, deepest)].T  # (C, Q)
    return divide(sums, norm(measure, judged, cutoffs))


def as_counts(values: ArrayLike, what: str) -> Ints:
    """Whole numbers from 1 up, such as cutoffs or depths."""
    counts = np.atleast_1d(np.asarray(values))
    if counts.size == 0 or not np.issubdtype(counts.dtype, np.integer) or counts.min() < 1:
        raise InputError(f"{what} must be whole numbers from 1 up, found {values!r}")
    return counts.astype(np.int64)
