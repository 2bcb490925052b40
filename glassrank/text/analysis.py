"""Texts to terms: what the analyzers of all languages share.

An analyzer cuts a text into words and makes a term of each, or nothing of a stop word. An index
keeps the name of its analyzer, and its queries go through the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from glassrank.text.word_breaks import split_unicode_words, word_spans

_CACHE_LIMIT = 100_000
_LONGEST_CACHED = 32
"""Together about 25 megabytes, whatever strangers search for."""


class Analyzer(ABC):
    """What an index needs of one."""

    language: str
    """Its code, or `auto` where every document has its own."""
    name: str
    """Kept in the index. Another name means other terms."""

    @property
    def languages(self) -> tuple[str, ...]:
        """Of the documents that an index holds."""
        return (self.language,)

    @abstractmethod
    def __call__(self, text: str) -> list[str]:
        """The terms of a query."""

    @abstractmethod
    def for_text(self, text: str) -> "WordAnalyzer":
        """The analyzer of a document with this text."""

    def with_languages(self, languages: Iterable[str]) -> "Analyzer":
        """The analyzer of an index that also holds documents in these languages."""
        return self


class WordAnalyzer(Analyzer):
    """Of one language. Remembers the terms of the words it has seen: stemming is the slow part."""

    stems_keep_beginnings = False
    """Whether a term differs from its words in their last characters alone."""

    def __init__(self) -> None:
        self._terms: dict[str, str] = {}

    def __call__(self, text: str) -> list[str]:
        """The terms of a text."""
        return [term for word in self.words(text) if (term := self.term(word))]

    def for_text(self, text: str) -> "WordAnalyzer":
        """This one, whatever the text."""
        return self

    def words(self, text: str) -> list[str]:
        """Lower-cased words, stop words included."""
        return split_unicode_words(self.lower_case(text))

    def spans(self, lowered: str) -> Iterator[tuple[int, int]]:
        """Where the words of a lower-cased text begin and end."""
        return word_spans(lowered)

    def lower_case(self, text: str) -> str:
        """One character for each, so that positions stay."""
        return lower_case(text)

    def term(self, word: str) -> str:
        """The term of one lower-cased word; empty if it is a stop word."""
        term = self._terms.get(word)
        if term is None:
            term = self._make_term(word)
            if len(word) <= _LONGEST_CACHED:
                if len(self._terms) >= _CACHE_LIMIT:
                    self._terms.clear()
                self._terms[word] = term
        return term

    @abstractmethod
    def _make_term(self, word: str) -> str:
        """As `term`, of a word that was not seen before."""


def lower_case(text: str) -> str:
    """Character by character, as Lucene does it, so that positions stay.

    Python alone would make two characters of İ, and another sigma at the end of a word.
    """
    if not text.isascii():
        text = text.replace("\u0130", "i").replace("\u03a3", "\u03c3")
    return text.lower()
