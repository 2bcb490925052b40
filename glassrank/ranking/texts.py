"""Ranking a list of texts: no index, no store."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from glassrank.deadline import Clock, Deadline, now
from glassrank.errors import InputError
from glassrank.models.saved import PACKAGED
from glassrank.ranking.cascade import Cascade
from glassrank.ranking.inputs import (
    check_budget,
    check_k,
    check_query,
    docs_of,
    ids_of,
    warn_if_nothing_reached,
)
from glassrank.ranking.live import Reranker
from glassrank.ranking.planner import Planner
from glassrank.ranking.stages import TextsStage, warm_up
from glassrank.retrieve.search import TopK
from glassrank.tracing import span
from glassrank.types import Doc, Ranking

Model = Reranker | str | Path
"""As people give it: loaded, or by the name of its folder."""


def load(model: str | Path = "default", device: str = "cpu", *, warm: bool = False) -> Reranker:
    """A model folder, `default` or `fast` for the models that come with the package, or `org/name`
    for one on the hub. Kept in memory, so that asking again costs nothing.

    The first time that it ranks texts, code is compiled and what a text costs is learned, before
    the budget begins; with `warm` that is done at once.
    """
    # One folder is one model, whether its path is a text or not; other texts may be on the hub.
    there = isinstance(model, str) and model not in PACKAGED and Path(model).is_dir()
    reranker = _loaded(Path(model) if there else model, device)
    if warm:
        warm_up(reranker)
    return reranker


@lru_cache(maxsize=4)
def _loaded(model: str | Path, device: str) -> Reranker:
    return Reranker.load(model, device)


def rank(
    query: str,
    texts: Iterable[str | Mapping[str, Any] | Doc],
    *,
    model: Model | Sequence[Model] | None = None,
    ids: Iterable[Any] | None = None,
    budget_ms: float | None = None,
    deadline: Deadline | None = None,
    k: int | None = None,
    clock: Clock = now,
) -> Ranking:
    """The texts, best first; a hit's `doc_id` is its text's place in the list, from 0, unless `ids`
    are given. A text may be a dict with a `text`, and a `title` and others if there are any.

    What the budget, or the deadline, does not allow keeps its order below the rest. Loading the
    model and warming it up, the first time, is not part of the budget; whoever gives a deadline
    has done so before (`load(warm=True)`). Several models are a cascade, as in a `Pipeline`: the
    first orders all texts, each further one as many of the best as there is time for. Without a
    model that is what the package's two do, or `default` alone if there is no hurry.

    >>> texts = ["Dogs bark at night.", "The cat sat on the mat."]
    >>> rank("where did the cat sit?", texts)[0].doc_id
    1
    """
    check_query(query)
    check_budget(budget_ms)
    if k is not None:
        check_k(k)
    began = clock()
    docs = docs_of(texts)
    names = ids_of(ids, len(docs))
    taken = clock() - began
    hurry = budget_ms is not None or deadline is not None
    stages = [TextsStage(model, docs) for model in rerankers_of(model, hurry)]
    if budget_ms is not None and deadline is None:
        for stage in stages:
            warm_up(stage.reranker, clock)
    deadline = deadline or Deadline.after(budget_ms, clock).earlier(taken)
    # Nobody has ranked them before: their order is all there is.
    first = TopK(np.arange(len(docs)), -np.arange(1, len(docs) + 1, dtype=np.float32))
    cascade = Cascade(first)
    with span("query", documents=len(docs)):
        cascade.rerank(query, stages, [len(docs)] * len(stages), deadline, Planner(clock))
    began = clock()
    hits = cascade.hits(k, names.__getitem__, lambda place, *_: docs[place], first_scores=False)
    cascade.timing["sorting"] = clock() - began
    ranking = cascade.ranking(query, hits, len(docs))
    warn_if_nothing_reached(ranking, budget_ms, caller=2)
    return ranking


def rerankers_of(model: Model | Sequence[Model] | None, hurry: bool) -> list[Reranker]:
    """As people give them; without any, those of the package that suit."""
    if model is None:
        model = ["fast", "default"] if hurry else "default"
    several = isinstance(model, Sequence) and not isinstance(model, str)
    models: list[Any] = list(model) if several else [model]  # type: ignore[arg-type]
    if not models or not all(isinstance(one, Model) for one in models):
        raise InputError(
            "a model is a folder, 'default', 'fast', or what load() gives, or several of those"
        )
    return [one if isinstance(one, Reranker) else load(one) for one in models]
