"""The neural models' view of a text: BlingFire's words, lower-cased, as in the TK papers.

No stop words are removed and nothing is stemmed: punctuation and function words are words too.
"""

import warnings
from collections.abc import Callable
from functools import cache


def split_words(text: str) -> list[str]:
    """
    >>> split_words("How do I read a CSV-file?")
    ['how', 'do', 'i', 'read', 'a', 'csv', '-', 'file', '?']
    """
    # A NUL would end the text for the C library behind this.
    text = text.replace("\0", " ")
    try:
        words = _text_to_words()(text)
    except UnicodeEncodeError:  # half a surrogate pair, as broken JSON may hold
        words = _text_to_words()(text.encode("utf-8", "replace").decode())
    return words.lower().split()


@cache
def _text_to_words() -> Callable[[str], str]:
    """Imported when it is first used: training on prepared arrays needs no tokenizer."""
    with warnings.catch_warnings():  # blingfire 0.1.8 has an invalid escape in a docstring
        warnings.simplefilter("ignore")
        import blingfire

    split: Callable[[str], str] = blingfire.text_to_words
    return split
