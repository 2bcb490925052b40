"""What the analyzers of all languages share. An index stores the name of its analyzer, and analyzes
its queries in the same way.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

_CACHE_LIMIT = 100_000
_MAX_CACHED_CHARS = 32  # together about 25 MB, whatever the queries are


class Analyzer(ABC):
    """The analyzer of an index."""

    language: str  # a language code, or `auto` if documents differ
    name: str  # stored in the index. Another name means other terms.

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
        self._cached_term = lru_cache(_CACHE_LIMIT)(self._make_term)

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
        short = len(word) <= _MAX_CACHED_CHARS
        return self._cached_term(word) if short else self._make_term(word)

    @abstractmethod
    def _make_term(self, word: str) -> str:
        """As `term`, without the cache."""


def lower_case(text: str) -> str:
    """Lower-cases each character, as Lucene does, so that positions stay: `str.lower` would make
    two characters of İ, and another sigma at the end of a word."""
    if not text.isascii():
        text = text.replace("\u0130", "i").replace("\u03a3", "\u03c3")
    return text.lower()


LONGEST_WORD = 255  # longer words are split into parts of this many characters, as in Lucene


def _unicode_pattern() -> str:
    marks = r"[\p{WB=Format}\p{WB=Extend}\p{WB=ZWJ}]*+"

    def any_of(*classes: str) -> str:
        """A character of these word-break classes, with its marks."""
        return "(?:[" + "".join(rf"\p{{WB={name}}}" for name in classes) + f"]{marks})"

    letter = any_of("ALetter", "Hebrew_Letter")
    hebrew = any_of("Hebrew_Letter")
    digit = any_of("Numeric")
    join = any_of("ExtendNumLet")
    between_letters = rf"{any_of('MidLetter', 'MidNumLet', 'Single_Quote')}(?={letter})"
    between_digits = rf"{any_of('MidNum', 'MidNumLet', 'Single_Quote')}(?={digit})"
    # WB7a to WB7c: a quote may end a Hebrew word, a double quote stand between its letters.
    between_hebrew = rf"(?<={hebrew}){any_of('Double_Quote')}(?={hebrew})"
    after_hebrew = rf"(?<={hebrew}){any_of('Single_Quote')}"
    letters = rf"{letter}(?:(?:{between_letters}|{between_hebrew})?+{letter})*+(?:{after_hebrew})?+"
    digits = rf"{digit}(?:(?:{between_digits})?+{digit})*+"
    run = rf"(?:(?:{letters}|{digits})++|{any_of('Katakana')}++)"
    # Runs of Katakana and of letters are words of their own unless `_` joins them.
    word = rf"{join}*+{run}(?:{join}++{run})*{join}*+"

    pictograph = r"\p{Extended_Pictographic}[\p{WB=Extend}\p{Emoji_Modifier}--\u200D]*+"
    emoji = rf"{pictograph}(?:\u200D{pictograph})*+\u200D?"
    flag = r"\p{Regional_Indicator}{2}" + marks
    keycap = r"[0-9#*]\uFE0F?\u20E3" + marks
    complex_script = rf"(?:\p{{Line_Break=Complex_Context}}{marks})++"
    alone = rf"[\p{{Script=Han}}\p{{Script=Hiragana}}]{marks}"
    kept = "|".join((keycap, flag, emoji, word, complex_script, alone))
    # A run of joiners without a word is consumed at once: trying each as a start would be slow.
    return rf"(?V1)({kept})|{join}++"


@cache
def _word() -> Any:
    """Compiled on first use: most texts do not need it."""
    import regex  # training needs no analyzer, and runs without it

    return regex.compile(_unicode_pattern())


# Most text is plain words between characters that no rule uses. The text is split there; parts of
# ASCII letters and digits are words, and the other parts are short and mostly cached.
_INSIDE_WORDS = "_.,;:'"
_BETWEEN_ASCII = ".,;:'"
"""Of these, what is a part of an ASCII word only between two of its letters or digits."""
_SEPARATORS = {
    code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) in _INSIDE_WORDS)
}
# In Unicode these three matter: keycap emoji (#, *) and Hebrew abbreviations (").
_UNICODE_SEPARATORS = {code: " " for code in _SEPARATORS if chr(code) not in '#*"'}
_NARROW_SPACE = "\u202f"  # joins words, by UAX #29, where Python would split
_MAX_RULE_CHARS = 40 * LONGEST_WORD
"""Longer parts are split before the rules apply, which need memory for every character of a word.
This changes nothing, since such words are split anyway."""
_PARTS_CACHED = 50_000
_MAX_PART_CHARS = 64  # together about 25 MB, whatever the texts are


def split_unicode_words(text: str) -> list[str]:
    """
    >>> split_unicode_words("The U.S.A.'s node.js costs $3.99, can't it? x86_64 ____")
    ['The', 'U.S.A', 's', 'node.js', 'costs', '3.99', "can't", 'it', 'x86_64']
    """
    blank = text.translate(_SEPARATORS if text.isascii() else _UNICODE_SEPARATORS)
    words: list[str] = []
    for part in blank.split(" ") if _NARROW_SPACE in text else blank.split():
        if part.isascii():  # most punctuation ends a sentence, and needs no rule
            part = part.strip(_BETWEEN_ASCII)
            if not part:
                continue
        if part.isalnum() and part.isascii():
            if len(part) <= LONGEST_WORD:
                words.append(part)
            else:
                words += _split_every(part, LONGEST_WORD)
        elif len(part) > _MAX_PART_CHARS:
            for limited in _split_every(part, _MAX_RULE_CHARS):
                words += _words_of(limited)
        else:
            words += _cached_words_of(part)
    return words


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """(start, stop) of each word of `split_unicode_words` in the text."""
    stop = 0
    for word in split_unicode_words(text):
        start = text.index(word, stop)
        stop = start + len(word)
        yield start, stop


def _words_of(text: str) -> list[str]:
    """By the rules alone: slower; `split_unicode_words` must agree with it."""
    return [part for word in _word().findall(text) for part in _split_every(word, LONGEST_WORD)]


_cached_words_of = lru_cache(_PARTS_CACHED)(_words_of)


def _split_every(text: str, length: int) -> list[str]:
    return [text[start : start + length] for start in range(0, len(text), length)]
