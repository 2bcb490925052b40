"""Packages that an adapter needs: one sentence where they are not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from glassrank.errors import InputError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """What is imported inside comes with this extra of glassrank's."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"this needs the package {error.name}; install it: pip install 'glassrank[{name}]'"
        ) from error
