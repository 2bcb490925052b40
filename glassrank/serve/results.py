"""A ranking as JSON: hits with snippets, how deep it went, and where each millisecond was spent."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from glassrank.deadline import NEVER, Deadline, now
from glassrank.rank import Pipeline
from glassrank.retrieve import Index
from glassrank.types import Hit, Ranking

_SHORTEST_MS = 0.1
"""A budget that is used up still needs a positive number: the first stage alone is what it gets."""


def rankings(
    index: Index,
    pipeline: Pipeline | None,
    query: str,
    k: int,
    method: str,
    deadline: Deadline,
    *,
    both: bool,
) -> Iterator[Ranking]:
    """The final ranking; with `both`, the first stage's before it, as soon as it is there. When it
    is too late for more, the first stage's is the final one."""
    if pipeline is not None and not both and not deadline.passed():
        left = max(deadline.left(), _SHORTEST_MS)
        yield pipeline(query, k, budget_ms=left, method=method)
        return
    began = now()
    depth = max(k, pipeline.candidates if pipeline else 0)
    first = index.top_k([query], depth, method, deadline=deadline)[0]
    found = zip(first.docs[:k].tolist(), first.scores[:k].tolist(), strict=True)
    hits = tuple(
        Hit(rank, index.snapshot.doc_id(number), score, rank, score)
        for rank, (number, score) in enumerate(found, 1)
    )
    spent = now() - began
    yield Ranking(query, hits, 0, {"first_stage": spent})
    if pipeline is not None and both:
        left = max(deadline.left(), _SHORTEST_MS)
        whole = pipeline.rerank(query, first.docs, first.scores, budget_ms=left)
        timing = {"first_stage": spent, **whole.timing}
        yield replace(whole, hits=whole.hits[:k], timing=timing)


class Shown:
    """Hits as JSON. What was made once, for the first stage's, is not made again, and what there is
    no time for is not made at all."""

    def __init__(self, index: Index, query: str, *, snippets: bool, always: int) -> None:
        """The first hits, so many, are `always` shown whole."""
        self._always = always
        self._index = index
        self._query = query
        self._snippets = snippets
        self._texts: dict[str, dict[str, Any]] = {}
        self.made = 0
        """Snippets, for the last ranking."""

    def hits(self, ranking: Ranking, deadline: Deadline = NEVER) -> list[dict[str, Any]]:
        before = len(self._texts)
        hits = self._hits(ranking, deadline)
        self.made = len(self._texts) - before
        return hits

    def _hits(self, ranking: Ranking, deadline: Deadline) -> list[dict[str, Any]]:
        return [
            {
                "rank": hit.rank,
                "doc_id": hit.doc_id,
                "score": hit.score,
                "first_rank": hit.first_rank,
                "first_score": hit.first_score,
                "reranked": hit.first_rank is not None and hit.first_rank <= ranking.depth,
                **(self._text(hit.doc_id) if self._is_shown(hit.rank, deadline) else {}),
            }
            for hit in ranking
        ]

    def _is_shown(self, rank: int, deadline: Deadline) -> bool:
        return self._snippets and (rank <= self._always or not deadline.passed())

    def _text(self, doc_id: str) -> dict[str, Any]:
        if doc_id not in self._texts:
            doc = self._index.doc(doc_id, 0)
            snippet = self._index.snippet(self._query, doc_id)
            self._texts[doc_id] = {
                "title": doc.title,
                "source": doc.source,
                "snippet": {"text": snippet.text, "matches": snippet.matches},
            }
        return self._texts[doc_id]


def stages(timing: dict[str, float], depth: int) -> list[dict[str, Any]]:
    """In the order in which they were gone through; scoring says how many documents it took."""
    return [
        {
            "name": name,
            "ms": round(ms, 3),
            **({"documents": depth} if name == "scoring" else {}),
        }
        for name, ms in timing.items()
        if name != "total"
    ]
