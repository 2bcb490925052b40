"""Other engines as first stages, and our models as re-rankers of other frameworks.

`engines.py` has engines that search words, `vector_index.py` vectors; each framework has a file of
its own, which imports the framework's package. If that is missing, one error says what to install.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from glassrank.rerank import rank
from glassrank.types import Hit

Item = TypeVar("Item")


def rank_items(
    query: str,
    items: Sequence[Item],
    texts: Sequence[str],
    scores: Sequence[float | None] = (),
    **options: Any,
) -> list[tuple[Item, Hit]]:
    """Ranks items by their texts; the retriever's `scores` count if every item has one."""
    if not items:
        return []
    known = [score for score in scores if score is not None]
    used = known if len(known) == len(items) else None
    ranking = rank(query, texts, scores=used, **options)
    return [(items[hit.doc_id], hit) for hit in ranking]
