"""The words of a model whose vectors are made of n-grams: of its vocabulary, and any other."""

import threading
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from glassrank.models.contract import WordTable
from glassrank.models.word_tables import SubwordTable
from glassrank.text.vocabulary import UNKNOWN, Vocabulary

_MOST_UNSEEN = 1 << 19
_GROWS = threading.Lock()


class SubwordVocabulary(Vocabulary):
    """A vocabulary that no word is missing from: one that was not there in training gets an id of
    its own when it is first read, and its n-grams' vector in each of the tables.

    Ids last as long as the model is loaded, and there are half a million of them: a service would
    otherwise grow with what strangers ask. Words beyond share the unknown word's vector.
    """

    def __init__(self, words: Iterable[str], tables: Sequence[SubwordTable]) -> None:
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


def vocabulary_of(
    tables: Sequence[WordTable | None], words: Sequence[str], buckets: int
) -> Vocabulary:
    """The words that these tables have vectors for, and what becomes of others."""
    subwords = [table for table in tables if isinstance(table, SubwordTable)]
    if len(subwords) == len(tables):
        return SubwordVocabulary(words, subwords)
    return Vocabulary(words, buckets)
