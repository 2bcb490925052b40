"""Candidates of several first stages as one list: by their ranks, or by their scores."""

from collections.abc import Hashable, Sequence
from typing import Any, Literal

from glassrank.errors import InputError
from glassrank.retrieve.first_stage import FirstStage, ScoredIds, ask

_RANK_CONSTANT = 60.0
"""As in the paper, where any number near it does as well."""


def reciprocal_rank_fusion(
    lists: Sequence[Sequence[Hashable]],
    weights: Sequence[float] | None = None,
    constant: float = _RANK_CONSTANT,
) -> ScoredIds:
    """The sum of weight / (constant + rank) over the lists that have a document.

    G. V. Cormack, C. L. A. Clarke, S. Büttcher, "Reciprocal rank fusion", SIGIR 2009.

    >>> reciprocal_rank_fusion([["a", "b"], ["b", "c"]]).ids
    ['b', 'a', 'c']
    """
    columns = [
        ScoredIds(ids, [1 / (constant + n) for n in range(1, len(ids) + 1)]) for ids in lists
    ]
    return _summed(columns, weights)


def weighted_sum(
    lists: Sequence[tuple[Sequence[Hashable], Sequence[float]]],
    weights: Sequence[float] | None = None,
    *,
    rescale: bool = True,
) -> ScoredIds:
    """The weighted sum of scores; a list that lacks a document adds nothing. With `rescale` each
    list's scores go from 0, its last, to 1, its first: else theirs must be of one scale.

    >>> weighted_sum([(["a", "b"], [9.0, 3.0]), (["b"], [0.7])], [1, 2])
    ScoredIds(ids=['b', 'a'], scores=[2.0, 1.0])
    """
    return _summed(
        [ScoredIds(ids, _rescaled(scores) if rescale else scores) for ids, scores in lists],
        weights,
    )


class Hybrid:
    """Several first stages as one: each is asked in its turn, and the answers are fused."""

    def __init__(
        self,
        first_stages: Sequence[FirstStage],
        *,
        by: Literal["rank", "score"] = "rank",
        weights: Sequence[float] | None = None,
    ) -> None:
        """By rank, `reciprocal_rank_fusion`; by score, `weighted_sum`."""
        if by not in ("rank", "score"):
            raise InputError(f"candidates are fused by 'rank' or by 'score', not {by!r}")
        self._first_stages = list(first_stages)
        self._by = by
        self._weights = weights
        _weights(self._first_stages, weights)

    def search(self, query: str, k: int) -> ScoredIds:
        """The best k of what all have found, k each."""
        lists = [ask(first_stage, query, k) for first_stage in self._first_stages]
        if self._by == "rank":
            fused = reciprocal_rank_fusion([ids for ids, _ in lists], self._weights)
        else:
            fused = weighted_sum(lists, self._weights)
        return ScoredIds(fused.ids[:k], fused.scores[:k])


def _summed(lists: Sequence[ScoredIds], weights: Sequence[float] | None) -> ScoredIds:
    """Best first; equal sums in the order in which they first came."""
    sums: dict[Any, float] = {}
    for (ids, scores), weight in zip(lists, _weights(lists, weights), strict=True):
        for doc_id, score in zip(ids, scores, strict=True):
            sums[doc_id] = sums.get(doc_id, 0.0) + weight * score
    best = sorted(sums, key=lambda doc_id: -sums[doc_id])
    return ScoredIds(best, [sums[doc_id] for doc_id in best])


def _weights(lists: Sequence[Any], weights: Sequence[float] | None) -> Sequence[float]:
    if weights is None:
        return [1.0] * len(lists)
    if len(weights) != len(lists):
        raise InputError(f"there are {len(weights)} weights for {len(lists)} lists; give one each")
    return weights


def _rescaled(scores: Sequence[float]) -> list[float]:
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]
