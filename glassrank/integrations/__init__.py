"""Other engines as first stages, and our models as re-rankers of other frameworks.

`engines.py` has engines that search words, `vector_index.py` vectors; each framework has a file of
its own, which imports the framework's package. If that is missing, one error says what to install.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from glassrank.errors import InputError
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


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Imports packages of this extra of glassrank."""
    try:
        yield
    except ImportError as error:
        # A package that imports others by itself may not say which one is missing.
        what = f"the package {error.name}" if error.name else f"a package that is missing ({error})"
        raise InputError(
            f"this needs {what}; install it: pip install 'glassrank[{name}]'",
            code="missing_package",
        ) from error
