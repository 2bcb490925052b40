"""Ranking a list of texts: no index, no store."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Clock, Deadline, now
from glassrank.models import Words
from glassrank.ranking.candidates import Stage, TextCandidates
from glassrank.ranking.cascade import Cascade
from glassrank.ranking.live import TOKENS_AT_ONCE, Reranker
from glassrank.ranking.planner import Planner
from glassrank.retrieve.search import TopK
from glassrank.types import Ranking


@lru_cache(maxsize=4)
def load(model: str | Path = "default", device: str = "cpu") -> Reranker:
    """A model folder, or `default` for the model that comes with the package. Kept in memory, so
    that asking again costs nothing."""
    return Reranker.load(model, device)


class TextsStage(Stage):
    """A model on texts, which are encoded live; a text's number is its place in the list."""

    def __init__(self, reranker: Reranker, texts: Sequence[str]) -> None:
        super().__init__(reranker, reranker.cost, TOKENS_AT_ONCE)
        self._texts = texts
        if reranker.model.first_stage_weight is not None:
            self.calibration = reranker.usage.texts_calibration

    def ready(
        self, query: Words, docs: NDArray[np.int64], first_stage: NDArray[np.float32]
    ) -> TextCandidates:
        texts = [self._texts[place] for place in docs.tolist()]
        return TextCandidates.of_texts(self.reranker, query, texts)


def rank(
    query: str,
    texts: Sequence[str],
    *,
    model: Reranker | str | Path | Sequence[Reranker] = "default",
    budget_ms: float | None = None,
    deadline: Deadline | None = None,
    k: int | None = None,
    clock: Clock = now,
) -> Ranking:
    """The texts, best first; a hit's `doc_id` is its text's place in the list, from 0.

    What the budget, or the deadline, does not allow keeps its order below the rest. Loading the
    model, the first time, is not part of the budget. Several models are a cascade, as in a
    `Pipeline`.

    >>> texts = ["Dogs bark at night.", "The cat sat on the mat."]
    >>> rank("where did the cat sit?", texts).hits[0].doc_id
    '1'
    """
    models = [load(model)] if isinstance(model, str | Path) else model
    rerankers = [models] if isinstance(models, Reranker) else models
    deadline = deadline or Deadline.after(budget_ms, clock)
    # Nobody has ranked them before: their order is all there is.
    first = TopK(np.arange(len(texts)), -np.arange(1, len(texts) + 1, dtype=np.float32))
    cascade = Cascade(first)
    stages = [TextsStage(reranker, texts) for reranker in rerankers]
    cascade.rerank(query, stages, [len(texts)] * len(stages), deadline, Planner(clock))
    began = clock()
    hits = tuple(hit._replace(first_score=None) for hit in cascade.hits(k, str))
    timing = {**cascade.timing, "sorting": clock() - began}
    timing["total"] = sum(timing.values())
    depth = max(cascade.depths, default=0)
    return Ranking(query, hits, depth, timing, len(texts), cascade.depths)
