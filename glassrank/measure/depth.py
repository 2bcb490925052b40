"""Quality at every re-ranking depth, from one pass of the second stage over all candidates.

At depth d the first d documents of the first stage are sorted by the second stage's score. Going
one deeper lets one document in: those it beats move down one place, nothing else changes. So the
rank of a relevant document at depth d is one plus the number of documents among the first d that
beat it, and a cumulative count along the first stage's order holds its rank at all depths.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import ArrayLike

from glassrank.measure.evaluate import as_counts, own_norm
from glassrank.measure.judged import NOTHING, Judged, ScoredList, lists_of, padded, trec_order
from glassrank.measure.measures import Floats, Ints, Measure, value
from glassrank.types import Qrels, Run

CELLS = 1 << 18
"""Queries are worked on together up to this many (query, depth, document) cells: that keeps the
arrays small enough for the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class DepthCurve:
    """One measure at each depth. `per_query` has no columns unless it was asked for."""

    measure: Measure
    depths: Ints  # (N,), ascending
    mean: Floats  # (N,)
    per_query: Floats  # (N, Q), queries in the order of the judgments


def best_depth(curve: DepthCurve) -> int:
    """The smallest depth that reaches the curve's maximum."""
    # Equal means may differ in their last bits, by the order in which they were summed.
    return int(curve.depths[np.argmax(curve.mean >= curve.mean.max() - 1e-12)])


def evaluate_at_depths(
    first_stage: Run,
    second_stage: Run,
    qrels: Qrels,
    measures: Sequence[str | Measure],
    depths: ArrayLike = range(1, 1001),
    keep_rest: bool = True,
    per_query: bool = False,
) -> dict[str, DepthCurve]:
    """The measures when the second stage re-ranks the first d documents, for each d of `depths`.

    Documents below d follow in first-stage order; `keep_rest=False` drops them instead, as the TK
    authors' evaluation does. A document that the second stage did not score comes after those it
    did, in first-stage order; one that only the second stage has is ignored.

    >>> first = Run.from_dict({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})
    >>> second = Run.from_dict({"q": {"a": 0.1, "b": 0.9, "c": 0.5}})
    >>> curve = evaluate_at_depths(first, second, {"q": {"b": 1}}, ["RR"], range(1, 4))["RR"]
    >>> curve.mean.tolist(), best_depth(curve)
    ([0.5, 1.0, 1.0], 2)
    """
    wanted = np.unique(as_counts(depths, "depths"))
    parsed = {str(measure): measure for measure in map(Measure.parse, measures)}
    judged = Judged.join(first_stage, qrels)
    first, second = lists_of(first_stage), lists_of(second_stage)
    sums = {name: np.zeros(len(wanted)) for name in parsed}
    values = {name: np.zeros((len(wanted), len(qrels) if per_query else 0)) for name in parsed}
    for group in _groups(judged, int(wanted[-1])):
        ids = [judged.query_ids[query] for query in group]
        places = [second_places(first[id_], second.get(id_, NOTHING)) for id_ in ids]
        ranks, grades = _at_depths(judged, group, places, wanted, keep_rest)  # (G, N, H)
        for name, measure in parsed.items():
            if measure.name == "P" and measure.cutoff is None and not keep_rest:
                # Of all that was retrieved, which is now d at most.
                by = np.minimum(judged.retrieved[group, None], wanted).astype(np.float64)
            else:
                by = np.broadcast_to(own_norm(measure, judged), len(qrels))[group, None]
            at_depth = value(measure, ranks, grades, by)  # (G, N)
            sums[name] += at_depth.sum(0)
            if per_query:
                values[name][:, group] = at_depth.T
    return {
        name: DepthCurve(measure, wanted, sums[name] / len(qrels), values[name])
        for name, measure in parsed.items()
    }


def _groups(judged: Judged, deepest: int) -> Iterator[Ints]:
    """Queries that found equally many relevant documents, some at a time; without any, none."""
    retrieved = np.isfinite(judged.ranks).sum(1)  # (Q,)
    deepest = min(deepest, int(judged.retrieved.max()))
    for count in np.unique(retrieved[retrieved > 0]):
        queries = np.flatnonzero(retrieved == count)
        step = max(1, CELLS // (deepest * int(count)))
        for start in range(0, len(queries), step):
            yield queries[start : start + step]


def second_places(first: ScoredList, second: ScoredList) -> Ints:
    """Where each document, in first-stage order, stands in the second stage's order."""  # (D,)
    order = trec_order(*second)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    if first[0] != second[0]:  # a re-ranker mostly keeps the rows of what it was given
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

    last = np.iinfo(np.int64).max  # beats nothing: fills lists that are shorter than others
    place = padded(places, last, np.int64)[:, :, None]  # (G, D, 1)
    relevant_place = np.take_along_axis(
        place, first_rank.astype(np.int64).transpose(0, 2, 1) - 1, axis=1
    )
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
