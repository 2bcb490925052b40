"""Word vectors: a row for each word of a vocabulary, or n-gram vectors for any word (P. Bojanowski
et al., "Enriching Word Vectors with Subword Information", TACL 2017: the mean of character
n-grams).

As in the TK authors' code, a word without a vector gets a random one, from a normal distribution
with the mean and standard deviation of the known values.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.text.words import PADDING, UNKNOWN, Vocabulary

_SPECIAL = UNKNOWN + 1
"""The number of ids before the first word."""
LONGEST_NGRAM = 64
_OFFSET, _PRIME, _BITS = 2166136261, 16777619, 0xFFFFFFFF  # FNV-1a in 32 bits


@dataclass(frozen=True, eq=False, repr=False)
class WordVectors:
    """Row 0 (padding) is zero, row 1 (unknown words) is random, the rest follow the vocabulary."""

    matrix: NDArray[np.float32]  # (V, E)
    found: int
    """The number of words with a vector; the others have random ones."""

    @property
    def words(self) -> int:
        """The number of words, without padding and the unknown word."""
        return len(self.matrix) - _SPECIAL

    @property
    def missing(self) -> int:
        """The number of words with a random vector."""
        return self.words - self.found

    def __repr__(self) -> str:
        return (
            f"WordVectors({self.words} words of {self.matrix.shape[1]} values, "
            f"{self.found} found, {self.missing} drawn)"
        )

    @classmethod
    def complete(
        cls, matrix: NDArray[np.float32], known: NDArray[np.bool_], seed: int = 0
    ) -> "WordVectors":
        """Fills the rows (V, E) that are not `known` (V,) with random values; they must be zero."""
        count = int(known.sum()) * matrix.shape[1]
        # From sums: matrix[known].std() would need the memory of the matrix again.
        mean = matrix.sum(dtype=np.float64) / count
        square = np.einsum("ve,ve->", matrix, matrix, dtype=np.float64) / count
        deviation = max(square - mean**2, 0.0) ** 0.5
        drawn = ~known
        drawn[PADDING] = False
        shape = int(drawn.sum()), matrix.shape[1]
        values = np.random.default_rng(seed).standard_normal(shape, np.float32)
        matrix[drawn] = values * np.float32(deviation) + np.float32(mean)
        matrix[PADDING] = 0
        return cls(matrix, int(known[_SPECIAL:].sum()))


class SubwordVectors:
    """The vector of a word is the mean of the vectors of its n-grams and, if known, its own.

    `table` has the vectors of known words first, then those of the n-gram buckets: the `rows` of a
    word are the input of an embedding bag, for further training.
    """

    def __init__(
        self,
        words: Sequence[str],
        table: NDArray[np.float32],
        shortest: int = 3,
        longest: int = 6,
    ) -> None:
        self.words = tuple(words)
        self.table = table  # (W + buckets, E)
        self.shortest = shortest
        self.longest = longest
        self._numbers = {word: number for number, word in enumerate(self.words)}

    @property
    def buckets(self) -> int:
        """The number of hash buckets of n-grams."""
        return len(self.table) - len(self.words)

    def __repr__(self) -> str:
        return (
            f"SubwordVectors({len(self.words)} words and {self.buckets} buckets "
            f"of {self.table.shape[1]} values)"
        )

    def rows(self, word: str) -> NDArray[np.int64]:
        """The rows of the table that make up a word; none if it is too short for n-grams."""
        word_row = [self._numbers[word]] if word in self._numbers else []
        hashes = ngram_hashes(word, self.shortest, self.longest) if self.buckets else ()
        return np.array(word_row + [len(self.words) + h % self.buckets for h in hashes], np.int64)

    def vectors(self, words: Iterable[str]) -> NDArray[np.float32]:
        """(N, E); zero for a word without rows."""
        bags = (self.table[self.rows(word)] for word in words)
        means = [bag.mean(0) if len(bag) else np.zeros_like(bag.sum(0)) for bag in bags]
        return np.array(means, np.float32).reshape(len(means), self.table.shape[1])

    def word_vectors(self, vocabulary: Vocabulary, seed: int = 0) -> WordVectors:
        """The matrix for a vocabulary, also for words that were not seen in training."""
        matrix = np.zeros((len(vocabulary), self.table.shape[1]), np.float32)  # (V, E)
        matrix[_SPECIAL:] = self.vectors(vocabulary.words[_SPECIAL:])
        known = np.asarray(matrix.any(1))  # (V,)
        if not known.any():
            raise InputError("none of the vocabulary's words has n-grams with a vector")
        return WordVectors.complete(matrix, known, seed)


def ngram_hashes(word: str, shortest: int, longest: int) -> Iterator[int]:
    """fastText's 32-bit hash of each n-gram of `<word>`, for n from `shortest` to `longest`."""
    characters = [c.encode("utf-8", "surrogatepass") for c in f"<{word}>"]
    end = len(characters) - 1
    for start in range(end + 1):
        value = _OFFSET  # FNV-1a is incremental: a longer n-gram continues a shorter one
        for n, character in enumerate(characters[start : start + longest], 1):
            for byte in character:
                # fastText uses signed bytes: those above 127 set the upper bits
                signed = byte if byte < 128 else byte | 0xFFFFFF00
                value = ((value ^ signed) * _PRIME) & _BITS
            if n >= shortest and (n > 1 or 0 < start < end):  # not a single bracket
                yield value
