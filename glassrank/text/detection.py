"""Detects the language of texts."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import regex

from glassrank.errors import needs_extra
from glassrank.text.english import FUNCTION_WORDS

_SAMPLE_CHARS = 400
_MIN_FUNCTION_WORDS = 3  # of another language, for texts to be in it
_ENGLISH_SHARE = 0.15
"""English texts have at least this share of English function words; others have hardly any."""
_LETTER = regex.compile(r"\p{L}")
_LATIN_LETTER = regex.compile(r"\p{Latin}")


@cache
def stop_words() -> dict[str, frozenset[str]]:
    """The stop words of each language that has a list."""
    text = files("glassrank.text").joinpath("stop_words.txt").read_text("utf-8")
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {language: frozenset(words) for language, *words in lines}


def detect_language(text: str, languages: tuple[str, ...]) -> str:
    """The most likely of these languages; English if there are no letters."""
    sample = text[:_SAMPLE_CHARS]
    if not _LETTER.search(sample):
        return "en"
    return str(_identifier(languages).classify(sample)[0])


@cache
def _identifier(languages: tuple[str, ...]) -> Any:
    with needs_extra("languages", "detecting a language, instead of naming it,"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(languages)
    return identifier


def looks_foreign(texts: Sequence[str]) -> bool:
    """Whether texts are clearly not English: most letters are of another script, or another
    language has at least twice as many function words in them.

    It needs no model; lists of names, codes or numbers are not foreign.

    >>> looks_foreign(["Der Preis der alten Häuser ist hoch, und sie sind nicht zu verkaufen."])
    True
    >>> looks_foreign(["Prices of old houses are high.", "list.sort(*, key=None)"])
    False
    """
    sample = " ".join(text[:_SAMPLE_CHARS] for text in texts)
    letters = _LETTER.findall(sample)
    if 2 * len(_LATIN_LETTER.findall(sample)) < len(letters):
        return True
    words = regex.findall(r"\p{L}{2,}", sample.lower())
    english = sum(word in FUNCTION_WORDS for word in words)
    if english > _ENGLISH_SHARE * len(words):  # most calls end here
        return False
    most = max(sum(word in known for word in words) for known in _foreign_words())
    return most >= max(_MIN_FUNCTION_WORDS, 2 * english)


@cache
def _foreign_words() -> list[frozenset[str]]:
    return [words for language, words in stop_words().items() if language != "cjk"]
