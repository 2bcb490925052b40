"""Ranking a list of texts: no index, no store."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from glassrank.deadline import Clock, Deadline, now
from glassrank.rank.budget import score_in_time
from glassrank.rank.candidates import TextCandidates
from glassrank.rank.live import TOKENS_AT_ONCE, Reranker, best_first
from glassrank.types import Hit, Ranking


@lru_cache(maxsize=4)
def load(model: str | Path = "default", device: str = "cpu") -> Reranker:
    """A model folder, or `default` for the model that comes with the package. Kept in memory, so
    that asking again costs nothing."""
    return Reranker.load(model, device)


def rank(
    query: str,
    texts: Sequence[str],
    *,
    model: Reranker | str | Path = "default",
    budget_ms: float | None = None,
    k: int | None = None,
    clock: Clock = now,
) -> Ranking:
    """The texts, best first; a hit's `doc_id` is its text's place in the list, from 0.

    What the budget does not allow keeps its order below the rest. Loading the model, the first
    time, is not part of the budget.

    >>> texts = ["Dogs bark at night.", "The cat sat on the mat."]
    >>> rank("where did the cat sit?", texts).hits[0].doc_id
    '1'
    """
    reranker = model if isinstance(model, Reranker) else load(model)
    deadline = Deadline.after(budget_ms, clock)
    began = clock()
    candidates = TextCandidates.of_texts(reranker, reranker.encode_query(query), texts)
    encoded = clock()
    scored = score_in_time(
        candidates.scores, candidates.sizes, reranker.cost, deadline, TOKENS_AT_ONCE
    )
    done = clock()
    places, values = best_first(scored.values, len(texts))
    hits = tuple(
        Hit(number, str(place), value, place + 1)
        for number, (place, value) in enumerate(
            zip(places[:k].tolist(), values[:k].tolist(), strict=True), 1
        )
    )
    timing = {"query": encoded - began, "scoring": done - encoded, "sorting": clock() - done}
    timing["total"] = sum(timing.values())
    return Ranking(query, hits, scored.depth, timing, len(texts))
