"""Which language a text is in."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import regex

from glassrank.errors import InputError
from glassrank.text.english import FUNCTION_WORDS

_READ = 400
"""Characters of a text that are looked at."""
_FEWEST = 3
"""Function words of another language by which texts are taken to be in it."""
_ENGLISH_SHARE = 0.15
"""Of the words of English texts at least so many are function words; of others' hardly any are."""
_LETTER = regex.compile(r"\p{L}")
_LATIN_LETTER = regex.compile(r"\p{Latin}")


@cache
def stop_words() -> dict[str, frozenset[str]]:
    """Of each language that has a list."""
    text = files("glassrank.text").joinpath("stop_words.txt").read_text("utf-8")
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {language: frozenset(words) for language, *words in lines}


def detect_language(text: str, languages: tuple[str, ...]) -> str:
    """The likeliest of these languages; English where there are no letters."""
    sample = text[:_READ]
    if not _LETTER.search(sample):
        return "en"
    return str(_identifier(languages).classify(sample)[0])


@cache
def _identifier(languages: tuple[str, ...]) -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise InputError(
            "to tell languages apart takes py3langid: pip install 'glassrank[languages]'; or name "
            "the language of the documents"
        ) from None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(languages)
    return identifier


def looks_foreign(texts: Sequence[str]) -> bool:
    """Whether texts, taken together, are clearly in another language than English: most letters
    are of another script, or another language has at least twice as many function words in them.

    It takes no model: lists of names, codes or numbers are not foreign.

    >>> looks_foreign(["Der Preis der alten Häuser ist hoch, und sie sind nicht zu verkaufen."])
    True
    >>> looks_foreign(["Prices of old houses are high.", "list.sort(*, key=None)"])
    False
    """
    sample = " ".join(text[:_READ] for text in texts)
    letters = _LETTER.findall(sample)
    if 2 * len(_LATIN_LETTER.findall(sample)) < len(letters):
        return True
    words = regex.findall(r"\p{L}{2,}", sample.lower())
    english = sum(word in FUNCTION_WORDS for word in words)
    if english > _ENGLISH_SHARE * len(words):  # most calls end here, in microseconds
        return False
    most = max(sum(word in known for word in words) for known in _foreign_words())
    return most >= max(_FEWEST, 2 * english)


@cache
def _foreign_words() -> list[frozenset[str]]:
    return [words for language, words in stop_words().items() if language != "cjk"]
