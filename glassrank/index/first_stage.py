"""First stages of any kind: their protocol, calls with a deadline, and fusion of several.

Any object with `search` is a first stage, any object with `fetch` a source of documents. `Index` is
one of them; `glassrank/integrations/` has both for other engines.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from math import isfinite, isinf
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from glassrank.deadline import NEVER, Deadline, LateError
from glassrank.errors import GlassrankError, InputError, describe_type
from glassrank.index.index import Index
from glassrank.index.search import Method
from glassrank.types import Doc

Result = TypeVar("Result")


class ScoredIds(NamedTuple):
    """Candidates, best first."""

    ids: Sequence[Any]
    scores: Sequence[float]


@runtime_checkable
class FirstStage(Protocol):
    """Finds candidates; with a budget, in a thread that is abandoned if it is late."""

    def search(self, query: str, k: int) -> tuple[Sequence[Any], Sequence[float] | None]:
        """Ids of at most k documents, and their scores, best first. If the scores are None, the
        order means nothing, and a `TextPipeline` ranks the texts by BM25."""


@runtime_checkable
class DocSource(Protocol):
    """Reads the documents that a first stage finds."""

    def fetch(self, doc_ids: Sequence[Any]) -> Iterable[str | Mapping[str, Any] | Doc]:
        """A text, a dict with a `text`, or a `Doc` for each id, in their order."""


class IndexFirstStage:
    """An `Index` as a first stage, for fusion with another, or as a source of documents."""

    def __init__(self, index: Index, method: str | Method = "bm25") -> None:
        self._index = index
        self._method = method

    def search(self, query: str, k: int) -> ScoredIds:
        """The top k."""
        hits = self._index.search(query, k, self._method)
        return ScoredIds([hit.doc_id for hit in hits], [hit.score for hit in hits])

    def fetch(self, doc_ids: Sequence[Any]) -> list[Doc]:
        """Stored documents."""
        return [self._index.doc(doc_id) for doc_id in doc_ids]


def retrieve(first_stage: FirstStage, query: str, k: int, deadline: Deadline = NEVER) -> ScoredIds:
    """The candidates of a query, best first; an error if the first stage fails or is late."""
    ids, scores = retrieve_ids(first_stage, query, k, deadline)
    if scores is None:
        raise _bad_answer(first_stage, "no scores, which only a TextPipeline accepts")
    return ScoredIds(ids, scores)


def retrieve_ids(
    first_stage: FirstStage, query: str, k: int, deadline: Deadline = NEVER
) -> tuple[list[Any], list[float] | None]:
    """As `retrieve`, but scores may be missing: then the order of the ids means nothing."""
    answer = call_by_deadline(_name(first_stage), lambda: first_stage.search(query, k), deadline)
    try:
        given, values = answer
        ids = list(given)[:k]
        scores = None if values is None else [float(score) for score in list(values)[:k]]
    except (TypeError, ValueError):
        problem = f"{describe_type(answer)}, expected (ids, scores)"
        raise _bad_answer(first_stage, problem) from None
    if scores is not None and len(ids) != len(scores):
        raise _bad_answer(first_stage, f"{len(ids)} ids and {len(scores)} scores")
    if not all(map(isfinite, scores or ())):
        raise _bad_answer(first_stage, "a score that is not a finite number")
    if len(set(ids)) < len(ids):
        raise _bad_answer(first_stage, "the same id twice; each document may appear once")
    return ids, scores


def _bad_answer(first_stage: FirstStage, problem: str) -> InputError:
    return InputError(f"{_name(first_stage)} returned {problem}", code="first_stage_failed")


def _name(first_stage: FirstStage) -> str:
    return f"the first stage {type(first_stage).__name__}"


def call_by_deadline(name: str, call: Callable[[], Result], deadline: Deadline) -> Result:
    """The result of other people's code, or a `LateError` at the deadline."""
    if isinf(deadline.at):
        return _wrap_errors(name, call)
    left = deadline.remaining()
    future: Future[Result] = Future()

    def work() -> None:
        try:
            future.set_result(_wrap_errors(name, call))
        except BaseException as error:
            future.set_exception(error)

    if left > 0:
        threading.Thread(target=work, daemon=True).start()
    try:
        return future.result(max(left, 0.0) / 1e3)
    except TimeoutError:
        raise LateError(
            f"{name} did not answer in time; allow more time, or check that it is running"
        ) from None


def _wrap_errors(name: str, call: Callable[[], Result]) -> Result:
    try:
        return call()
    except GlassrankError:
        raise
    except Exception as error:
        raise GlassrankError(
            f"{name} failed ({type(error).__name__}: {error}); check that it is running",
            code="first_stage_failed",
        ) from error


_RANK_CONSTANT = 60.0  # as in the paper; values near it work as well


def reciprocal_rank_fusion(
    lists: Sequence[Sequence[Hashable]],
    weights: Sequence[float] | None = None,
    constant: float = _RANK_CONSTANT,
) -> ScoredIds:
    """Scores a document by the sum of weight / (constant + rank) over the lists that contain it.

    G. V. Cormack, C. L. A. Clarke, S. Büttcher, "Reciprocal rank fusion", SIGIR 2009.

    >>> reciprocal_rank_fusion([["a", "b"], ["b", "c"]]).ids
    ['b', 'a', 'c']
    """
    columns = [
        ScoredIds(ids, [1 / (constant + n) for n in range(1, len(ids) + 1)]) for ids in lists
    ]
    return _sum_scores(columns, weights)


def weighted_sum(
    lists: Sequence[tuple[Sequence[Hashable], Sequence[float]]],
    weights: Sequence[float] | None = None,
    *,
    rescale: bool = True,
) -> ScoredIds:
    """Scores a document by the weighted sum of its scores; a list without it adds nothing. With
    `rescale` the scores of each list are scaled to 0 to 1; otherwise they must be comparable.

    >>> weighted_sum([(["a", "b"], [9.0, 3.0]), (["b"], [0.7])], [1, 2])
    ScoredIds(ids=['b', 'a'], scores=[2.0, 1.0])
    """
    return _sum_scores(
        [ScoredIds(ids, _rescale(scores) if rescale else scores) for ids, scores in lists], weights
    )


class Hybrid:
    """Fuses several first stages; they are called one after another."""

    def __init__(
        self,
        first_stages: Sequence[FirstStage],
        *,
        by: Literal["rank", "score"] = "rank",
        weights: Sequence[float] | None = None,
    ) -> None:
        """`by` rank: `reciprocal_rank_fusion`; by score: `weighted_sum`."""
        if by not in ("rank", "score"):
            raise InputError(f"candidates are fused by 'rank' or by 'score', not {by!r}")
        self._first_stages = list(first_stages)
        self._by = by
        self._weights = weights
        _check_weights(self._first_stages, weights)

    def search(self, query: str, k: int) -> ScoredIds:
        """The top k of the fused top k of all."""
        lists = [retrieve(first_stage, query, k) for first_stage in self._first_stages]
        if self._by == "rank":
            fused = reciprocal_rank_fusion([ids for ids, _ in lists], self._weights)
        else:
            fused = weighted_sum(lists, self._weights)
        return ScoredIds(fused.ids[:k], fused.scores[:k])


def _sum_scores(lists: Sequence[ScoredIds], weights: Sequence[float] | None) -> ScoredIds:
    """Best first; equal sums in the order of their first occurrence."""
    sums: dict[Any, float] = {}
    for (ids, scores), weight in zip(lists, _check_weights(lists, weights), strict=True):
        for doc_id, score in zip(ids, scores, strict=True):
            sums[doc_id] = sums.get(doc_id, 0.0) + weight * score
    best = sorted(sums, key=lambda doc_id: -sums[doc_id])
    return ScoredIds(best, [sums[doc_id] for doc_id in best])


def _check_weights(lists: Sequence[Any], weights: Sequence[float] | None) -> Sequence[float]:
    if weights is None:
        return [1.0] * len(lists)
    if len(weights) != len(lists):
        raise InputError(f"there are {len(weights)} weights for {len(lists)} lists; give one each")
    return weights


def _rescale(scores: Sequence[float]) -> list[float]:
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]
