"""What the analyzers of all languages share. An index stores the name of its analyzer, and analyzes
its queries in the same way.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from glassrank.text.word_breaks import split_unicode_words, word_spans

_CACHE_LIMIT = 100_000
_MAX_CACHED_CHARS = 32  # together about 25 MB, whatever the queries are


class Analyzer(ABC):
    """The analyzer of an index."""

    language: str
    """A language code, or `auto` if documents differ."""
    name: str
    """Stored in the index. Another name means other terms."""

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the documents of an index."""
        return (self.language,)

    @abstractmethod
    def __call__(self, text: str) -> list[str]:
        """The terms of a query."""

    @abstractmethod
    def for_text(self, text: str) -> "WordAnalyzer":
        """The analyzer for a document with this text."""

    def with_languages(self, languages: Iterable[str]) -> "Analyzer":
        """The analyzer of an index that also has documents in these languages."""
        return self


class WordAnalyzer(Analyzer):
    """An analyzer of one language. It caches the terms of words, since stemming is slow."""

    stems_are_prefixes = False
    """Whether a term differs from its words only in their last characters."""

    def __init__(self) -> None:
        self._terms: dict[str, str] = {}

    def __call__(self, text: str) -> list[str]:
        """The terms of a text."""
        return [term for word in self.words(text) if (term := self.term(word))]

    def for_text(self, text: str) -> "WordAnalyzer":
        """This analyzer, for any text."""
        return self

    def words(self, text: str) -> list[str]:
        """Lower-cased words, stop words included."""
        return split_unicode_words(self.lower_case(text))

    def spans(self, lowered: str) -> Iterator[tuple[int, int]]:
        """(start, stop) of the words of a lower-cased text."""
        return word_spans(lowered)

    def lower_case(self, text: str) -> str:
        """Lower-cases each character, so that positions stay."""
        return lower_case(text)

    def term(self, word: str) -> str:
        """The term of one lower-cased word; empty if it is a stop word."""
        term = self._terms.get(word)
        if term is None:
            term = self._make_term(word)
            if len(word) <= _MAX_CACHED_CHARS:
                if len(self._terms) >= _CACHE_LIMIT:
                    self._terms.clear()
                self._terms[word] = term
        return term

    @abstractmethod
    def _make_term(self, word: str) -> str:
        """As `term`, without the cache."""


def lower_case(text: str) -> str:
    """Lower-cases each character, as Lucene does, so that positions stay.

    `str.lower` would make two characters of İ, and another sigma at the end of a word.
    """
    if not text.isascii():
        text = text.replace("\u0130", "i").replace("\u03a3", "\u03c3")
    return text.lower()
