"""Texts that are split into words, kept on disk: a word takes its letters there, and in memory a
text takes eight bytes, where a list takes an object for each of its words."""

import os
import tempfile
import weakref
from array import array
from collections.abc import Iterator, Sequence
from typing import overload

_SEPARATOR = "\n"
"""No word has white space in it: that is where texts were split."""
_AT_ONCE = 1 << 22


class WordTexts(Sequence[list[str]]):
    """A list of lists of words that can be read again and again; it grows at its end.

    >>> texts = WordTexts()
    >>> texts.append(["red", "cat"])
    >>> texts.append([])
    >>> texts[0], list(texts)
    (['red', 'cat'], [['red', 'cat'], []])
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._ends = array("q", [0])
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def append(self, words: Sequence[str]) -> None:
        """One text more."""
        text = _SEPARATOR.join(words).encode("utf-8", "surrogatepass")
        self._waiting.append(text)
        self._waiting_bytes += len(text)
        self._ends.append(self._ends[-1] + len(text))
        if self._waiting_bytes > _AT_ONCE:
            self._write()

    def _write(self) -> None:
        self._file.seek(0, os.SEEK_END)
        self._file.write(b"".join(self._waiting))
        self._file.flush()
        self._waiting, self._waiting_bytes = [], 0

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, number: int) -> list[str]: ...
    @overload
    def __getitem__(self, number: slice) -> list[list[str]]: ...
    def __getitem__(self, number: int | slice) -> list[str] | list[list[str]]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        if self._waiting:
            self._write()
        start, end = self._ends[number], self._ends[number + 1]
        return _words(os.pread(self._file.fileno(), end - start, start))

    def __iter__(self) -> Iterator[list[str]]:
        if self._waiting:
            self._write()
        number = 0
        while number < len(self):  # a block at a time: a read for each would take longer than it
            start, first = self._ends[number], number
            while number < len(self) and self._ends[number + 1] - start <= _AT_ONCE:
                number += 1
            number = max(number, first + 1)
            block = os.pread(self._file.fileno(), self._ends[number] - start, start)
            for i in range(first, number):
                yield _words(block[self._ends[i] - start : self._ends[i + 1] - start])


def _words(text: bytes) -> list[str]:
    return text.decode("utf-8", "surrogatepass").split(_SEPARATOR) if text else []
