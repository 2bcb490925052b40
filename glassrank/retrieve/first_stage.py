"""A first stage of any kind: what it is asked, and how its answer is waited for.

An index of ours is one among others. Anything that has `search` is a first stage, anything that has
`fetch` a source of documents; `glassrank/adapters/` has both for other people's engines.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from math import isfinite, isinf
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from glassrank.deadline import NEVER, Deadline, LateError
from glassrank.errors import GlassrankError, InputError, kind
from glassrank.retrieve.index import Index
from glassrank.retrieve.methods import Method
from glassrank.types import Doc

Result = TypeVar("Result")


class ScoredIds(NamedTuple):
    """What a first stage finds, best first."""

    ids: Sequence[Any]
    scores: Sequence[float]


@runtime_checkable
class FirstStage(Protocol):
    """Finds candidates. With a budget it is asked in a thread of its own, which is left behind if
    no answer comes in time."""

    def search(self, query: str, k: int) -> tuple[Sequence[Any], Sequence[float]]:
        """Ids of at most k documents, and their scores, best first."""


@runtime_checkable
class DocSource(Protocol):
    """Has the documents that a first stage finds."""

    def fetch(self, doc_ids: Sequence[Any]) -> Iterable[str | Mapping[str, Any] | Doc]:
        """One for each id, in their order: its text, or a dict with a `text`, or a `Doc`."""


class IndexSearch:
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


def ask(first_stage: FirstStage, query: str, k: int, deadline: Deadline = NEVER) -> ScoredIds:
    """The candidates of one query; one sentence where the first stage fails, is late, or answers
    what cannot be ranked."""
    name = f"the first stage {type(first_stage).__name__}"
    answer = in_time(name, lambda: first_stage.search(query, k), deadline)
    try:
        ids, scores = (list(column)[:k] for column in answer)
        scores = [float(score) for score in scores]
    except (TypeError, ValueError):
        raise InputError(f"{name} answered with {kind(answer)}, not with ids, scores") from None
    if len(ids) != len(scores):
        raise InputError(f"{name} answered with {len(ids)} ids and {len(scores)} scores")
    if not all(map(isfinite, scores)):
        raise InputError(f"{name} answered with a score that is no number")
    if len(set(ids)) < len(ids):
        raise InputError(f"{name} answered with the same id twice; each document may come once")
    return ScoredIds(ids, scores)


def in_time(name: str, call: Callable[[], Result], deadline: Deadline) -> Result:
    """What somebody else's code answers by the deadline. Nothing stops it if it is late, but nobody
    waits for it either."""
    if isinf(deadline.at):
        return _explained(name, call)
    left = deadline.left()
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
