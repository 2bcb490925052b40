"""Other people's engines as first stages, and our rankers as parts of other people's pipelines.

Each adapter is a file, and imports its package when it is imported itself: nothing else does. Where
it is not installed, one sentence says so.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from glassrank.errors import InputError


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
