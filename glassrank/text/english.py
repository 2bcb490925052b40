"""The first stage's view of a text: Lucene's English analysis.

Words by Unicode's rules, possessive 's removed, lower-cased, stop words removed, Porter stems.
"""

from glassrank.text.porter import stem
from glassrank.text.word_breaks import words

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with".split()
)
_POSSESSIVE = ("'s", "\u2019s", "\uff07s")
_CACHE_LIMIT = 100_000
_LONGEST_CACHED = 32
"""Together about 25 megabytes, whatever strangers search for."""


class EnglishAnalyzer:
    """Texts to terms. Remembers the terms of the words it has seen: stemming is the slow part.

    >>> EnglishAnalyzer()("The patient's plasma contains unneeded antibodies")
    ['patient', 'plasma', 'contain', 'unneed', 'antibodi']
    """

    name = "lucene-english-1"

    def __init__(self) -> None:
        self._terms: dict[str, str] = {}

    def __call__(self, text: str) -> list[str]:
        return [term for word in self.words(text) if (term := self.term(word))]

    def words(self, text: str) -> list[str]:
        """Lower-cased words, stop words included."""
        return words(lower_case(text))

    def term(self, word: str) -> str:
        """The term of one lower-cased word; empty if it is a stop word."""
        term = self._terms.get(word)
        if term is None:
            bare = word[:-2] if word.endswith(_POSSESSIVE) else word
            term = "" if bare in STOP_WORDS else stem(bare)
            if len(word) <= _LONGEST_CACHED:
                if len(self._terms) >= _CACHE_LIMIT:
                    self._terms.clear()
                self._terms[word] = term
        return term


def lower_case(text: str) -> str:
    """Character by character, as Lucene does it, so that positions stay.

    Python alone would make two characters of İ, and another sigma at the end of a word.
    """
    if not text.isascii():
        text = text.replace("\u0130", "i").replace("\u03a3", "\u03c3")
    return text.lower()
