"""BM25 and query likelihood, as Lucene computes them.

Both combine a factor of the term, a norm of the document's length, and the tf of the term in the
document. `topk.py` compiles the same formulas.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

MIN_TERM_SCORE = 1e-30
"""The least that a matching term adds, so that a document of score 0 is still a match."""


class CollectionStatistics(NamedTuple):
    """Statistics of the whole collection."""

    docs: int
    tokens: int

    @property
    def average_length(self) -> float:
        """Tokens of an average document."""
        return self.tokens / self.docs if self.docs else 0.0


class TermStatistics(NamedTuple):
    """Document frequency (df) and collection frequency (cf) of a term."""

    docs: int
    occurrences: int


class TermFactors(NamedTuple):
    """The factors of a score that depend on the term, without its weight in the query."""

    weight: float
    scale: float


@dataclass(frozen=True)
class BM25:
    """idf * tf / (tf + k1 (1 - b + b L / avgdl)), idf = ln(1 + (N - df + 0.5) / (df + 0.5))."""

    k1: float = 0.9
    b: float = 0.4
    rounded: bool = False
    """Quantizes lengths as Lucene does, for exactly the same ranking."""

    def term_factors(self, term: TermStatistics, collection: CollectionStatistics) -> TermFactors:
        """The factors of a term."""
        return TermFactors(
            float(np.log1p((collection.docs - term.docs + 0.5) / (term.docs + 0.5))), 1.0
        )

    def length_norms(self, lengths: NDArray[Any], collection: CollectionStatistics) -> Floats:
        """What the length of each document adds to the denominator."""
        lengths = quantize_lengths(lengths) if self.rounded else lengths
        relative = lengths / max(collection.average_length, 1e-9)
        return np.asarray(self.k1 * (1 - self.b + self.b * relative), np.float32)

    def score(self, term: TermFactors, tfs: NDArray[Any], norms: Floats) -> NDArray[Any]:
        """The score of a term; compiled code computes the same."""
        return np.asarray(term.weight * tfs / (tfs + norms))


@dataclass(frozen=True)
class QL:
    """ln(1 + tf / (mu p)) + ln(mu / (L + mu)), p = (cf + 1) / (tokens + 1); never below 0.

    Only matching terms count: this is Lucene's Dirichlet smoothing, not the textbook's.
    """

    mu: float = 1000.0
    rounded: bool = False

    def term_factors(self, term: TermStatistics, collection: CollectionStatistics) -> TermFactors:
        """The factors of a term."""
        probability = (term.occurrences + 1) / (collection.tokens + 1)
        return TermFactors(1.0, 1 / (self.mu * probability))

    def length_norms(self, lengths: NDArray[Any], collection: CollectionStatistics) -> Floats:
        """What the length of each document adds for each term."""
        lengths = quantize_lengths(lengths) if self.rounded else lengths
        return np.asarray(np.log(self.mu / (lengths + self.mu)), np.float32)

    def score(self, term: TermFactors, tfs: NDArray[Any], norms: Floats) -> NDArray[Any]:
        """The score of a term; compiled code computes the same."""
        matched = term.weight * (np.log1p(term.scale * tfs) + norms)
        return np.asarray(np.maximum(matched, MIN_TERM_SCORE))


def quantize_lengths(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """As Lucene stores a length in one byte: exact up to 40, then four leading bits above 24.

    >>> quantize_lengths(np.array([40, 81, 129, 210])).tolist()
    [40, 80, 128, 200]
    """
    above = np.maximum(lengths.astype(np.int64) - 24, 0)
    dropped_bits = np.maximum(np.frexp(above)[1] - 4, 0)
    return np.where(lengths < 24, lengths, 24 + (above >> dropped_bits << dropped_bits))
