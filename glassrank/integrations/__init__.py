"""Other people's engines as first stages, and our rankers as parts of other people's pipelines.

`engines.py` has those that find words, `vector_index.py` vectors; each framework has a file of its
own. A package is imported by its adapter alone; where it is missing, one sentence says so.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from glassrank.errors import InputError


def scores_if_all(scores: Sequence[float | None]) -> list[float] | None:
    """Those of what has found the documents, if it gave one to each."""
    known = [score for score in scores if score is not None]
    return known if len(known) == len(scores) else None


@contextmanager
def extra(name: str) -> Iterator[None]:
    """What is imported inside comes with this extra of glassrank's."""
    try:
        yield
    except ImportError as error:
        # A package that looks for others by itself may not say which one it has not found.
        what = f"the package {error.name}" if error.name else f"a package that is missing ({error})"
        raise InputError(
            f"this needs {what}; install it: pip install 'glassrank[{name}]'"
        ) from error
