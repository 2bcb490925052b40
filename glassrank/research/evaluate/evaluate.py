"""Evaluate a run: at the measures' cutoffs, at many cutoffs, or at every re-ranking depth.

All depths need one scoring pass. At depth d, the second stage sorts the first d documents of the
first stage. The rank of a relevant document is then one plus the number of documents among these d
that beat it: a cumulative count along the first stage's order has its rank at all depths.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import ArrayLike

from glassrank.corpus.runs import trec_order
from glassrank.errors import InputError
from glassrank.research.evaluate.judged import (
    NOTHING,
    Judged,
    ScoredList,
    lists_by_query,
    pad_rows,
)
from glassrank.research.evaluate.measures import (
    NO_CUTOFF,
    OF_LISTS,
    Floats,
    Ints,
    Measure,
    divide,
    gains,
    norm,
    value,
    value_of_lists,
)
from glassrank.types import Qrels, Run

CELLS = 1 << 18
"""The most (query, depth, document) cells at once, so that arrays fit in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Values by measure name. Means are over all judged queries; a missing query counts 0."""

    query_ids: tuple[str, ...]
    mean: dict[str, float]
    per_query: dict[str, Floats]  # each (Q,), aligned with query_ids

    @classmethod
    def of(cls, query_ids: Sequence[str], per_query: dict[str, Floats]) -> "Evaluation":
        """With the means of the queries' values."""
        mean = {name: float(values.mean()) for name, values in per_query.items()}
        return cls(tuple(query_ids), mean, per_query)


def evaluate(
    run: Run, qrels: Qrels, measures: Sequence[str | Measure], judged_only: bool = False
) -> Evaluation:
    """Evaluate a run; `judged_only` removes unjudged documents from the ranking.

    >>> run = Run.from_dict({"q1": {"a": 2.0, "b": 1.0}})
    >>> result = evaluate(run, {"q1": {"b": 1}, "q2": {"c": 1}}, ["RR@10", "R@1"])
    >>> result.mean
    {'RR@10': 0.25, 'R@1': 0.0}
    >>> result.query_ids, result.per_query["RR@10"].tolist()
    (('q1', 'q2'), [0.5, 0.0])
    """
    judged = Judged.join(run, qrels, judged_only)
    per_query = {
        str(measure): value_of_lists(measure, judged)
        if measure.name in OF_LISTS
        else value(measure, judged.ranks, judged.grades, norm_of(measure, judged))
        for measure in map(Measure.parse, measures)
    }
    return Evaluation.of(judged.query_ids, per_query)


def norm_of(measure: Measure, judged: Judged) -> Floats:
    """The norm at the measure's own cutoff."""  # (Q,) or (1,)
    by: Floats = norm(measure, judged, np.array([measure.cutoff or NO_CUTOFF]))[0]
    return by


def evaluate_at_cutoffs(
    run: Run,
    qrels: Qrels,
    measures: Sequence[str | Measure],
    cutoffs: ArrayLike,
) -> dict[str, Floats]:
    """Each measure (given without a cutoff) at every cutoff: arrays (cutoffs, queries).

    Queries stand in the order of `qrels`.

    >>> run = Run.from_dict({"q": {"a": 2.0, "b": 1.0}})
    >>> evaluate_at_cutoffs(run, {"q": {"b": 1}}, ["P"], [1, 2, 4])["P"].tolist()
    [[0.0], [0.5], [0.25]]
    """
    wanted = as_counts(cutoffs, "cutoffs")
    judged = Judged.join(run, qrels)
    return {str(m): _at_cutoffs(m, judged, wanted) for m in map(Measure.parse, measures)}


def _at_cutoffs(measure: Measure, judged: Judged, cutoffs: Ints) -> Floats:
    _check_not_whole_list(measure)
    if measure.cutoff is not None:
        raise InputError(f"{measure} has a cutoff; expected a measure without one")
    # Each gain is put at its rank, so that one cumulative sum holds the sums at all cutoffs.
    deepest = min(cutoffs.max(), judged.retrieved.max())  # no gains beyond it
    within = judged.ranks <= deepest  # (Q, H)
    at_rank = np.zeros((len(judged.query_ids), deepest + 1))  # (Q, 1 + deepest)
    rows, _ = np.nonzero(within)
    columns = judged.ranks[within].astype(np.int64)
    at_rank[rows, columns] = gains(measure, judged.ranks, judged.grades)[within]
    sums = np.cumsum(at_rank, axis=1)[:, np.minimum(cutoffs, deepest)].T  # (C, Q)
    return divide(sums, norm(measure, judged, cutoffs))


def _check_not_whole_list(measure: Measure) -> None:
    if measure.name in OF_LISTS:
        raise InputError(f"{measure} needs whole lists; choose another measure, such as nDCG@10")


def as_counts(values: ArrayLike, what: str) -> Ints:
    """Positive integers, such as cutoffs or depths."""
    counts = np.atleast_1d(np.asarray(values))
    if counts.size == 0 or not np.issubdtype(counts.dtype, np.integer) or counts.min() < 1:
        raise InputError(f"{what} must be positive integers, found {values!r}")
    return counts.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class DepthCurve:
    """One measure at each depth. `per_query` has columns only if they were asked for."""

    measure: Measure
    depths: Ints  # (N,), ascending
    mean: Floats  # (N,)
    per_query: Floats  # (N, Q), queries in the order of the judgments

    @property
    def best_depth(self) -> int:
        """The smallest depth that reaches the maximum."""
        return int(self.depths[find_first_best(self.mean)])

    def at(self, depth: int) -> float:
        """The mean at one of the depths, or at the deepest."""
        return float(self.mean[min(int(np.searchsorted(self.depths, depth)), len(self.depths) - 1)])


def find_first_best(values: Floats) -> int:
    """The first place of the maximum."""
    # Equal means may differ in their last bits, by the order in which they were summed.
    return int(np.argmax(values >= values.max() - 1e-12))


def evaluate_at_depths(
    first_stage: Run,
    second_stage: Run,
    qrels: Qrels,
    measures: Sequence[str | Measure],
    depths: ArrayLike = range(1, 1001),
    keep_rest: bool = True,
    per_query: bool = False,
) -> dict[str, DepthCurve]:
    """Evaluate a second stage that re-ranks the first d documents, for each d of `depths`.

    Documents below d follow in first-stage order; `keep_rest=False` drops them instead, as the TK
    authors' evaluation does. A document that the second stage did not score comes after those it
    did, in first-stage order; one that only the second stage has is ignored.

    >>> first = Run.from_dict({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})
    >>> second = Run.from_dict({"q": {"a": 0.1, "b": 0.9, "c": 0.5}})
    >>> curve = evaluate_at_depths(first, second, {"q": {"b": 1}}, ["RR"], range(1, 4))["RR"]
    >>> curve.mean.tolist(), curve.best_depth
    ([0.5, 1.0, 1.0], 2)
    """
    wanted = np.unique(as_counts(depths, "depths"))
    parsed = {str(measure): measure for measure in map(Measure.parse, measures)}
    for measure in parsed.values():
        _check_not_whole_list(measure)
    judged = Judged.join(first_stage, qrels)
    first, second = lists_by_query(first_stage), lists_by_query(second_stage)
    sums = {name: np.zeros(len(wanted)) for name in parsed}
    values = {name: np.zeros((len(wanted), len(qrels) if per_query else 0)) for name in parsed}
    for group in _group_queries(judged, int(wanted[-1])):
        ids = [judged.query_ids[query] for query in group]
        places = [rank_second_stage(first[id_], second.get(id_, NOTHING)) for id_ in ids]
        ranks, grades = _at_depths(judged, group, places, wanted, keep_rest)  # (G, N, H)
        for name, measure in parsed.items():
            if measure.name == "P" and measure.cutoff is None and not keep_rest:
                # Of all that was retrieved, which is now d at most.
                by = np.minimum(judged.retrieved[group, None], wanted).astype(np.float64)
            else:
                by = np.broadcast_to(norm_of(measure, judged), len(qrels))[group, None]
            at_depth = value(measure, ranks, grades, by)  # (G, N)
            sums[name] += at_depth.sum(0)
            if per_query:
                values[name][:, group] = at_depth.T
    return {
        name: DepthCurve(measure, wanted, sums[name] / len(qrels), values[name])
        for name, measure in parsed.items()
    }


def _group_queries(judged: Judged, deepest: int) -> Iterator[Ints]:
    """Groups of queries that found equally many relevant documents, and at least one."""
    retrieved = np.isfinite(judged.ranks).sum(1)  # (Q,)
    deepest = min(deepest, int(judged.retrieved.max()))
    for count in np.unique(retrieved[retrieved > 0]):
        queries = np.flatnonzero(retrieved == count)
        step = max(1, CELLS // (deepest * int(count)))
        for start in range(0, len(queries), step):
            yield queries[start : start + step]


def rank_second_stage(first: ScoredList, second: ScoredList) -> Ints:
    """The position in the second stage of each document, in first-stage order."""  # (D,)
    order = trec_order(*second)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    if first[0] != second[0]:  # a re-ranker usually keeps the order of its input
        place_of = dict(zip(second[0], places.tolist(), strict=True))
        places = np.fromiter(map(place_of.get, first[0], repeat(-1)), np.int64, len(first[0]))
    places = places[trec_order(*first)]
    unscored = places < 0
    places[unscored] = len(order) + np.flatnonzero(unscored)
    return places


def _at_depths(
    judged: Judged, group: Ints, places: list[Ints], depths: Ints, keep_rest: bool
) -> tuple[Floats, Ints]:
    """Ranks and grades of the relevant documents at each depth, best rank first."""  # (G, N, H)
    count = int(np.isfinite(judged.ranks[group[0]]).sum())
    first_rank = judged.ranks[group, None, :count]  # (G, 1, H)
    grades = judged.grades[group, None, :count]  # (G, 1, H)

    last = np.iinfo(np.int64).max  # padding, which beats nothing
    place = pad_rows(places, last, np.int64)[:, :, None]  # (G, D, 1)
    first_place = first_rank.astype(np.int64).transpose(0, 2, 1) - 1  # (G, H, 1)
    relevant_place = np.take_along_axis(place, first_place, axis=1)
    deepest = min(int(depths[-1]), place.shape[1])
    beaten = place[:, :deepest] < relevant_place.transpose(0, 2, 1)  # (G, D, H)
    above = np.cumsum(beaten, axis=1, dtype=np.int32)[:, np.minimum(depths, deepest) - 1]

    inside = first_rank <= depths[:, None]  # (G, N, H)
    ranks = np.where(inside, above + 1.0, first_rank if keep_rest else np.inf)  # (G, N, H)
    grades = np.broadcast_to(grades, ranks.shape)
    if count == 1:
        return ranks, grades
    order = np.argsort(ranks, axis=-1)
    return np.take_along_axis(ranks, order, -1), np.take_along_axis(grades, order, -1)
