"""How a model's documents are divided: a part of how it is used."""

from dataclasses import dataclass

from glassrank.errors import InputError

_MOST = 10_000


@dataclass(frozen=True)
class Passages:
    """How documents that are longer than a model reads are divided, and what their score is."""

    overlap: int = 0
    """How much of a passage the next one begins with, at most: whole sentences of so many words, or
    pieces, as the model reads."""
    most: int = 64
    """Of one document: what stands behind them is not read. With 1, documents are cut."""
    best: int = 1
    """A document's score is the sum of those of so many passages, the best ones."""

    def __post_init__(self) -> None:
        if self.overlap < 0 or not 1 <= self.best <= self.most <= _MOST:
            raise InputError(
                f"passages: expected an overlap of 0 or more, and 1 to {_MOST:,} passages of which "
                f"1 or more are the best, found {self}"
            )
