"""A first stage of any kind: what it is asked, how its answer is waited for, and how candidates of
several are one list, by their ranks or by their scores.

An index of ours is one among others. Anything that has `search` is a first stage, anything that has
`fetch` a source of documents; `glassrank/integrations/` has both for other people's engines.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from math import isfinite, isinf
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from glassrank.deadline import NEVER, Deadline, LateError
from glassrank.errors import GlassrankError, InputError, describe_type
from glassrank.index.index import Index
from glassrank.index.methods import Method
from glassrank.types import Doc

Result = TypeVar("Result")


class ScoredIds(NamedTuple):
    """What a first stage finds, best first."""

    ids: Sequence[Any]
    scores: Sequence[float]


class CandidateIds(NamedTuple):
    """The same of one that may have no scores: then its order says nothing."""

    ids: Sequence[Any]
    scores: Sequence[float] | None


@runtime_checkable
class FirstStage(Protocol):
    """Finds candidates. With a budget it is asked in a thread of its own, which is left behind if
    no answer comes in time."""

    def search(self, query: str, k: int) -> tuple[Sequence[Any], Sequence[float] | None]:
        """Ids of at most k documents, and their scores, best first. With None for scores they are
        in no order: a `TextPipeline` then ranks their texts by BM25."""


@runtime_checkable
class DocSource(Protocol):
    """Has the documents that a first stage finds."""

    def fetch(self, doc_ids: Sequence[Any]) -> Iterable[str | Mapping[str, Any] | Doc]:
        """One for each id, in their order: its text, or a dict with a `text`, or a `Doc`."""


class IndexFirstStage:
    """An index of ours as a first stage, to be fused with another, or for its documents."""

    def __init__(self, index: Index, method: str | Method = "bm25") -> None:
        self._index = index
        self._method = method

    def search(self, query: str, k: int) -> ScoredIds:
        """The best k, by the method that was chosen."""
        hits = self._index.search(query, k, self._method)
        return ScoredIds([hit.doc_id for hit in hits], [hit.score for hit in hits])

    def fetch(self, doc_ids: Sequence[Any]) -> list[Doc]:
        """Stored documents."""
        return [self._index.doc(doc_id) for doc_id in doc_ids]


def retrieve(first_stage: FirstStage, query: str, k: int, deadline: Deadline = NEVER) -> ScoredIds:
    """The candidates of one query, best first; one sentence where the first stage fails, is late,
    or answers what cannot be ranked."""
    ids, scores = retrieve_ids(first_stage, query, k, deadline)
    if scores is None:
        raise InputError(
            f"{_name(first_stage)} answered without scores; only a TextPipeline can do without"
        )
    return ScoredIds(ids, scores)


def retrieve_ids(
    first_stage: FirstStage, query: str, k: int, deadline: Deadline = NEVER
) -> CandidateIds:
    """The same, where it may do without scores."""
    name = _name(first_stage)
    answer = call_by_deadline(name, lambda: first_stage.search(query, k), deadline)
    try:
        given, values = answer
        ids = list(given)[:k]
        scores = None if values is None else [float(score) for score in list(values)[:k]]
    except (TypeError, ValueError):
        raise InputError(
            f"{name} answered with {describe_type(answer)}, not with ids, scores"
        ) from None
    if scores is not None:
        if len(ids) != len(scores):
            raise InputError(f"{name} answered with {len(ids)} ids and {len(scores)} scores")
        if not all(map(isfinite, scores)):
            raise InputError(f"{name} answered with a score that is no number")
    if len(set(ids)) < len(ids):
        raise InputError(f"{name} answered with the same id twice; each document may come once")
    return CandidateIds(ids, scores)


def _name(first_stage: FirstStage) -> str:
    return f"the first stage {type(first_stage).__name__}"


def call_by_deadline(name: str, call: Callable[[], Result], deadline: Deadline) -> Result:
    """What somebody else's code answers by the deadline. Nothing stops it if it is late, but nobody
    waits for it either."""
    if isinf(deadline.at):
        return _explained(name, call)
    left = deadline.remaining()
    future: Future[Result] = Future()

    def work() -> None:
        try:
            future.set_result(_explained(name, call))
        except BaseException as error:
            future.set_exception(error)

    if left > 0:
        threading.Thread(target=work, daemon=True).start()
    try:
        return future.result(max(left, 0.0) / 1e3)
    except TimeoutError:
        raise LateError(
            f"{name} did not answer in time; allow more, or see whether it is running"
        ) from None


def _explained(name: str, call: Callable[[], Result]) -> Result:
    try:
        return call()
    except GlassrankError:
        raise
    except Exception as error:
        raise GlassrankError(
            f"{name} failed ({type(error).__name__}: {error}); see whether it is running"
        ) from error


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
        lists = [retrieve(first_stage, query, k) for first_stage in self._first_stages]
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
