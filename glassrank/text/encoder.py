"""From texts to the ids that a model reads, whatever its units are: words here, pieces of words in
`wordpieces.py`. What a model does not read is counted, never dropped in silence."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from glassrank.text.vocabulary import Vocabulary
from glassrank.text.words import split_words


class TextIds(NamedTuple):
    """One text as ids, and how much of it they leave out."""

    ids: NDArray[np.int32]  # (L,)
    cut_words: int = 0
    cut_pieces: int = 0
    """Of the words that were kept."""

    @property
    def cut(self) -> int:
        """Words and pieces together."""
        return self.cut_words + self.cut_pieces


class TextEncoder(Protocol):
    """At most `longest` ids for each text, of at most `most_words` words where that is given."""

    def encode(
        self, texts: Sequence[str], longest: int, most_words: int | None = None
    ) -> list[TextIds]:
        """Ids of each text."""


LONGEST_READ = 1 << 20
"""Characters. A model reads a few hundred words: of a longer text no more than this is split."""


def readable(text: str) -> tuple[str, int]:
    """What of a text is split into words, and about how many words stand behind that.

    >>> readable("The cat sat.")
    ('The cat sat.', 0)
    """
    if len(text) <= LONGEST_READ:
        return text, 0
    return text[:LONGEST_READ], text.count(" ", LONGEST_READ) + 1


class WordEncoder:
    """One id for each word.

    >>> WordEncoder(Vocabulary(["cat"])).encode(["The cat sat."], longest=3)
    [TextIds(ids=array([1, 2, 1], dtype=int32), cut_words=1, cut_pieces=0)]
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def encode(
        self, texts: Sequence[str], longest: int, most_words: int | None = None
    ) -> list[TextIds]:
        """Ids of each text's words."""
        most = longest if most_words is None else min(longest, most_words)
        encoded = []
        for text in texts:
            read, behind = readable(text)
            words = split_words(read)
            cut = max(0, len(words) - most) + behind
            encoded.append(TextIds(self.vocabulary.ids(words[:most]), cut_words=cut))
        return encoded
