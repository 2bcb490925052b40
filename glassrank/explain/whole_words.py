"""Which pieces make up a word: a piece that begins with ## goes on with the word before it.

A person would leave out a word, not half of one. What is found for a word is divided evenly among
its pieces.
"""

import math
from collections.abc import Sequence

from glassrank.explain.piece_reading import FIRST, LAST

Places = Sequence[int]
"""Of pieces that belong together."""


def whole_words(pieces: Sequence[str]) -> list[Places]:
    """The places of each word's pieces; [CLS] and [SEP] belong to none.

    >>> whole_words(["[CLS]", "read", "##ing", "csv", "[SEP]"])
    [[1, 2], [3]]
    """
    words: list[list[int]] = []
    for place, piece in enumerate(pieces):
        if piece in (FIRST, LAST):
            continue
        if piece.startswith("##") and words and words[-1][-1] == place - 1:
            words[-1].append(place)
        else:
            words.append([place])
    return [*words]


def in_runs(words: Sequence[Places], most: int) -> list[Places]:
    """At most so many runs of neighbouring words, as short as can be.

    >>> in_runs([[1, 2], [3], [4]], most=2)
    [[1, 2, 3], [4]]
    """
    size = max(1, math.ceil(len(words) / most))
    starts = range(0, len(words), size)
    return [[place for word in words[s : s + size] for place in word] for s in starts]


def shared_evenly(values: Sequence[float], units: Sequence[Places], count: int) -> list[float]:
    """The value of each unit, divided among its places; 0 for places of none.

    >>> shared_evenly([4.0, 1.0], [[1, 2], [3]], count=5)
    [0.0, 2.0, 2.0, 1.0, 0.0]
    """
    shares = [0.0] * count
    for value, places in zip(values, units, strict=True):
        for place in places:
            shares[place] = value / len(places)
    return shares
