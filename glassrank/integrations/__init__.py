"""Other engines as first stages (`engines.py`, `vector_index.py`), and our models as re-rankers of
other frameworks, each in a file that imports the framework's package.
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
