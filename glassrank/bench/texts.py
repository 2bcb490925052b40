"""Texts to measure on: the Python documentation of this machine, or a collection's own file."""

import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

from glassrank.corpus import read_docs
from glassrank.corpus.pydocs import python_docs
from glassrank.types import Doc


@lru_cache(maxsize=1)
def texts(path: Path | None = None, most: int = 20_000) -> tuple[str, ...]:
    """As they come: short and long ones."""
    docs = python_docs() if path is None else iter(read_docs(str(path)))
    return tuple(doc.text for doc in islice(docs, most))


def passages(count: int, words: int = 64, seed: int = 0) -> Iterator[Doc]:
    """Windows of real text, as many as asked for; each begins somewhere else, and every seventh
    word comes from elsewhere, so that no two are the same."""
    rng = random.Random(seed)
    running = [word for text in texts() for word in text.split()]
    for number in range(count):
        start = rng.randrange(len(running) - 2 * words)
        window = running[start : start + rng.randrange(words // 2, words * 3 // 2)]
        for place in range(0, len(window), 7):
            window[place] = running[rng.randrange(len(running))]
        yield Doc(f"p{number}", " ".join(window))


def questions(count: int, seed: int = 1) -> list[str]:
    """A few words that stand together somewhere."""
    rng = random.Random(seed)
    running = [word for text in texts() for word in text.split()]
    starts = [rng.randrange(len(running) - 10) for _ in range(count)]
    return [" ".join(running[start : start + rng.randrange(3, 9)]) for start in starts]
