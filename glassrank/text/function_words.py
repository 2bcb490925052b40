"""Words that say little by themselves: articles, pronouns, auxiliaries, question words, and
punctuation. People do not ask what these added, so they are told together and not coloured."""

from collections.abc import Iterable

from glassrank.text.english import STOP_WORDS

FUNCTION_WORDS = STOP_WORDS | frozenset(
    "about after all also am any been before being between both can could did do does doing done "
    "during each few from further get had has have having he her here hers him his how i its just "
    "let many may me might more most much must my nor now off once only other our ours out over "
    "own per same shall she should so some than them themselves those through too under until up "
    "upon us very via want we were what when where whether which while who whom whose why would "
    "you your yours ll re ve".split()
)
"""Lucene's stop words among them, which the first stage does not even look for."""
MARKERS = ("[CLS]", "[SEP]")
"""Where a text begins and ends for an encoder; their vectors are made of the whole text."""


def is_function_word(word: str) -> bool:
    """
    >>> [is_function_word(word) for word in ("the", "?", "csv", "[CLS]", "c++", "don't")]
    [True, True, False, True, False, False]
    """
    return word in MARKERS or word in FUNCTION_WORDS or not any(map(str.isalnum, word))


def without_function_words(words: Iterable[str]) -> list[str]:
    """
    >>> without_function_words(["how", "to", "read", "a", "file", "?"])
    ['read', 'file']
    """
    return [word for word in words if not is_function_word(word)]


def folded(words: list[str]) -> list[bool]:
    """Which of a query's words are told together: none, if there would be nothing else to tell.

    >>> folded(["read", "a", "file", "?"]), folded(["to", "be"])
    ([False, True, False, True], [False, False])
    """
    small = [is_function_word(word) for word in words]
    return [False] * len(words) if all(small) else small
