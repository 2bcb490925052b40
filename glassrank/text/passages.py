"""Where a text that is longer than a model reads is divided: at the ends of sentences where that
can be, within a sentence where it alone is too long.

Passages are found one after the other, from the beginning on, so that whoever needs the first one
alone reads no further.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Sizes = Callable[[Sequence[str]], NDArray[np.int64]]
"""Of texts: (n, c), what each takes of the c kinds of room that a model has."""

# Every run of marks, closing brackets and white space is looked at once, however long it is.
_END = re.compile(
    r"""(?<![.!?])[.!?]++["'”’»)\]]*+\s++(?![a-z])|[。！？]++[”’」』）]*+\s*+|\n[ \t\r]*+\n\s*+"""  # noqa: RUF001
)
_WORD = re.compile(r"\s*+\S{1,100}\s*+")
"""A word, or a part of what is longer than words are, with the white space around it."""
_CHARACTERS_AT_ONCE = 2_000
"""About so many are measured together."""
_LONGEST_SENTENCE = 2_000


class Unit(NamedTuple):
    """A sentence, or a word of one, up to this place of the text."""

    stop: int
    size: NDArray[np.int64]  # (c,)


def sentence_ends(text: str) -> Iterator[int]:
    """Each with the white space behind it; the last is the text's own. What goes on for longer than
    sentences do ends with a word.

    >>> list(sentence_ends("It is 3.5 m. long! Is it? Yes."))
    [19, 26, 30]
    """
    start = 0
    for stop in (*(end.end() for end in _END.finditer(text)), len(text)):
        while stop - start > _LONGEST_SENTENCE:
            last = start + _LONGEST_SENTENCE
            start = max(text.rfind(" ", start, last), text.rfind("\n", start, last)) + 1 or last
            yield start
        if stop > start:
            start = stop
            yield stop


def split(text: str, sizes: Sizes, room: NDArray[np.int64], overlap: int) -> Iterator[range]:
    """Passages from the text's beginning to its end, each a range of characters; none where the
    text is empty.

    >>> def words(texts): return np.array([[len(text.split())] for text in texts])
    >>> text = "The cat sat. It saw a dog, and ran. A dog!"
    >>> [text[p.start : p.stop] for p in split(text, words, np.array([5]), overlap=0)]
    ['The cat sat. ', 'It saw a dog, and ', 'ran. A dog!']
    """
    units = _Units(text, sizes, room)
    passage: list[Unit] = []
    start, used = 0, np.zeros_like(room)
    while (unit := units.next()) is not None:
        if (used + unit.size <= room).all():
            passage.append(unit)
            used = used + unit.size
            continue
        if (2 * used < room).all() and units.divide(unit, passage[-1].stop if passage else start):
            continue  # rather than leave more than half of the room empty
        if not passage:  # a single word that is longer than all the room
            yield range(start, unit.stop)
            start = unit.stop
            continue
        yield range(start, passage[-1].stop)
        kept = _kept(passage, overlap, room - unit.size)
        start = passage[-1 - kept].stop
        passage = passage[len(passage) - kept :]
        used = sum((unit.size for unit in passage), np.zeros_like(room))
        units.put_back(unit)
    if passage:
        yield range(start, passage[-1].stop)


def _kept(passage: Sequence[Unit], overlap: int, room: NDArray[np.int64]) -> int:
    """How many of a passage's last units the next one begins with."""
    used = np.zeros_like(room)
    for count, unit in enumerate(reversed(passage[1:])):
        used = used + unit.size
        if used[0] > overlap or (used > room).any():
            return count
    return len(passage) - 1


class _Units:
    """Sentences of a text, measured some at a time; one that is too long is divided into words."""

    def __init__(self, text: str, sizes: Sizes, room: NDArray[np.int64]) -> None:
        self._text = text
        self._sizes = sizes
        self._room = room
        self._ends = sentence_ends(text)
        self._at = 0
        self._ready: deque[Unit] = deque()
        self._words: set[int] = set()  # where a unit ends that cannot be divided

    def next(self) -> Unit | None:
        """None at the end of the text."""
        if not self._ready:
            begin, stops = self._at, []
            for stop in self._ends:
                stops.append(stop)
                if stop - begin > _CHARACTERS_AT_ONCE:
                    break
            self._measure(begin, stops)
            self._at = stops[-1] if stops else self._at
        return self._ready.popleft() if self._ready else None

    def put_back(self, unit: Unit) -> None:
        """It comes next."""
        self._ready.appendleft(unit)

    def divide(self, unit: Unit, start: int) -> bool:
        """Its words come next, if it has several; it begins at `start`."""
        if unit.stop in self._words:
            return False
        stops = [word.end() for word in _WORD.finditer(self._text, start, unit.stop)]
        self._words.update(stops)
        waiting = list(self._ready)
        self._ready.clear()
        self._measure(start, stops)
        self._ready.extend(waiting)
        return True

    def _measure(self, start: int, stops: Sequence[int]) -> None:
        texts = [self._text[a:b] for a, b in zip([start, *stops], stops, strict=False)]
        if texts:
            self._ready.extend(map(Unit, stops, self._sizes(texts)))
