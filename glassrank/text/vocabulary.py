"""Words to numbers: a vocabulary of the words that a collection uses often enough.

Id 0 is padding and id 1 stands for every word that is not in the vocabulary. With buckets, such a
word has one of several further ids by its hash: two rare words then seldom pass for one another,
and a rare word of the query still finds itself in a document. Where vectors are made of n-grams, no
word is missing at all.
"""

import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError

PADDING = 0
UNKNOWN = 1
_SPECIAL = ("<pad>", "<unk>")
_MOST_UNSEEN = 1 << 19
_GROWS = threading.Lock()


class Vocabulary:
    """An ordered set of words; `vocabulary.words[id]` and `vocabulary.ids(words)` are inverse.

    >>> vocabulary = Vocabulary(["cat", "mat"])
    >>> vocabulary.ids(["the", "cat"]).tolist()
    [1, 2]
    """

    def __init__(self, words: Iterable[str], buckets: int = 0) -> None:
        self.buckets = buckets
        self.words: tuple[str, ...] = (*_SPECIAL, *words)
        self._ids = {word: number for number, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            twice = next(word for word, n in Counter(self.words).items() if n > 1)
            raise InputError(f"the word {twice!r} appears twice in the vocabulary; remove one")
        # Not words of any text: a text that says "<unk>" has the unknown word all the same.
        del self._ids[_SPECIAL[0]], self._ids[_SPECIAL[1]]

    @classmethod
    def build(
        cls,
        texts: Iterable[Iterable[str]],
        min_count: int = 5,
        most: int | None = None,
        buckets: int = 0,
    ) -> "Vocabulary":
        """From texts split into words: those that occur `min_count` times, frequent ones first, and
        no more than `most` of them.

        >>> Vocabulary.build([["a", "b"], ["b", "c", "c"]], min_count=2).words
        ('<pad>', '<unk>', 'b', 'c')
        """
        counts: Counter[str] = Counter()
        for words in texts:
            counts.update(words)
        for special in _SPECIAL:
            counts.pop(special, None)
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(sorted(kept, key=lambda word: (-counts[word], word))[:most], buckets)

    def ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Of words: (L,)."""
        get = self._ids.get
        if not self.buckets:
            return np.fromiter((get(word, UNKNOWN) for word in words), np.int32)
        return np.fromiter((get(word) or self._bucket(word) for word in words), np.int32)

    def _bucket(self, word: str) -> int:
        """Behind the words; the same on every machine, as Python's own hash is not."""
        number = zlib.crc32(word.encode("utf-8", "surrogatepass")) % self.buckets
        return len(self.words) + number

    @property
    def rows(self) -> int:
        """How many ids there are: words, then buckets."""
        return len(self.words) + self.buckets

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)


class GrowingTable(Protocol):
    """Vectors that are made of n-grams, for words that training has not seen too."""

    ids_of_unseen: dict[str, int]

    def extend(self, words: Sequence[str]) -> range:
        """Ids, after those there are, for words that the vocabulary lacks."""


class SubwordVocabulary(Vocabulary):
    """A vocabulary that no word is missing from: one that was not there in training gets an id of
    its own when it is first read, and its n-grams' vector in each of the tables.

    Ids last as long as the model is loaded, and there are half a million of them: a service would
    otherwise grow with what strangers ask. Words beyond share the unknown word's vector.
    """

    def __init__(self, words: Iterable[str], tables: Sequence[GrowingTable]) -> None:
        super().__init__(words)
        self._tables = tables
        self._unseen = tables[0].ids_of_unseen  # of the model, which several readers share

    def ids(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Of words: (L,)."""
        words = list(words)
        known, unseen = self._ids, self._unseen
        if any(word not in known and word not in unseen for word in words):
            with _GROWS:
                new = [w for w in dict.fromkeys(words) if w not in known and w not in unseen]
                new = new[: max(0, _MOST_UNSEEN - len(unseen))]
                for numbers in [table.extend(new) for table in self._tables][:1]:
                    unseen.update(zip(new, numbers, strict=True))
        return np.fromiter(
            (known.get(word) or unseen.get(word, UNKNOWN) for word in words), np.int32
        )

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and bool(self.ids([word])[0] != UNKNOWN)
