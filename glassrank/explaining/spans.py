"""Where the model's words stand in the text that a person reads.

The tokenizer has a function that tells, but it fails an assertion on empty texts and on characters
that it leaves out. It changes no character of a word, though: words are found one after the other.
"""

from collections.abc import Iterator, Sequence

Span = tuple[int, int]

_MISSED, _NEAR = 100, 1_000


def word_spans(text: str, words: Sequence[str]) -> list[Span | None]:
    """Start and stop of each lower-cased word, in order; None for one that is not there.

    >>> word_spans("The cat: CATS!", ["the", "cat", ":", "cats", "!"])
    [(0, 3), (4, 7), (7, 8), (9, 13), (13, 14)]
    >>> word_spans("one", ["two", "one"])
    [None, (0, 3)]
    """
    lowered, origins = _lowered(text)
    return [
        None if span is None else (origins[span[0]], origins[span[1] - 1] + 1)
        for span in _found(lowered, words)
    ]


def joined_origins(text: str, words: Sequence[str]) -> list[int | None]:
    """From where in the text each character of `" ".join(words)` comes; None for the spaces, and
    for words that are not there.

    >>> joined_origins("A-b", ["a", "-", "b"])
    [0, None, 1, None, 2]
    """
    lowered, origins = _lowered(text)
    places: list[int | None] = []
    for word, span in zip(words, _found(lowered, words), strict=True):
        places += [None] * len(word) if span is None else [origins[at] for at in range(*span)]
        places.append(None)
    return places[:-1]


def _found(lowered: str, words: Sequence[str]) -> Iterator[Span | None]:
    at = missed = 0
    for word in words:
        wanted = _plain_sigma(word)
        # A text in which many words are missing is not searched to its end for each of them.
        stop = len(lowered) if missed < _MISSED else at + _NEAR
        start = lowered.find(wanted, at, stop)
        if start < 0 or not wanted:
            missed += 1
            yield None
            continue
        at = start + len(wanted)
        yield start, at


def _lowered(text: str) -> tuple[str, Sequence[int]]:
    """The text as words have it, and from where in the text each of its characters comes: some
    capital letters become two small ones."""
    # Half a surrogate pair reaches the tokenizer as a question mark.
    text = text.encode("utf-8", "replace").decode()
    lowered = _plain_sigma(text.lower())
    if len(lowered) == len(text):  # no letter became two, and only sigmas look at their neighbours
        return lowered, range(len(text))
    return _lowered_one_by_one(text)


def _lowered_one_by_one(text: str) -> tuple[str, Sequence[int]]:
    """By the rule alone: slower, and what the short way must agree with."""
    pieces = [character.lower() for character in text]
    origins = [place for place, piece in enumerate(pieces) for _ in piece]
    return _plain_sigma("".join(pieces)), origins


def _plain_sigma(text: str) -> str:
    """A small sigma looks different at the end of a word, which a single letter cannot know."""
    return text.replace("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")
