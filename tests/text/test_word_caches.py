"""What is remembered of words has a bound, whatever strangers send."""

import sys

import pytest

from glassrank.index import snapshot
from glassrank.text import EnglishAnalyzer, analysis

MOST = 32 << 20
"""Bytes, of each cache."""
_ENTRY = 120
"""Of a dictionary or a list of links, for each thing in it."""


def test_terms_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "x" * analysis._MAX_CACHED_CHARS
    assert analysis._CACHE_LIMIT * (2 * sys.getsizeof(longest) + _ENTRY) < MOST
    monkeypatch.setattr(analysis, "_CACHE_LIMIT", 50)
    analyzer = EnglishAnalyzer()
    for number in range(500):
        assert analyzer(f"word{number} {longest}{number}") == [
            f"word{number}",
            f"{longest}{number}",
        ]
    assert analyzer._cached_term.cache_info()[:4] == (0, 500, 50, 50), "longer ones are not kept"


def test_words_are_bounded() -> None:
    longest = "a'" * (analysis._MAX_PART_CHARS // 2)
    parts = analysis._words_of("é," * (analysis._MAX_PART_CHARS // 2))
    size = sys.getsizeof(longest) + sys.getsizeof(parts) + _ENTRY
    assert analysis._PARTS_CACHED * size < MOST
    cached = analysis._cached_words_of
    assert cached.cache_info().maxsize == analysis._PARTS_CACHED
    cached.cache_clear()
    for number in range(500):
        assert analysis.split_unicode_words(f"it's{number} {longest}x{number}")
    assert cached.cache_info().currsize == 500, "longer parts are not kept"


def test_statistics_of_terms_are_bounded() -> None:
    longest = "x" * analysis.LONGEST_WORD
    assert snapshot._TERMS_KEPT * (sys.getsizeof(longest) + 3 * _ENTRY) < MOST
