"""What is remembered of words has a bound, whatever strangers send."""

import sys

import pytest

from glassrank.index import snapshot
from glassrank.text import EnglishAnalyzer, analysis, word_breaks

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
    assert len(analyzer._terms) <= 50
    assert max(map(len, analyzer._terms)) <= analysis._MAX_CACHED_CHARS


def test_words_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "a'" * (word_breaks._MAX_CACHED_CHARS // 2)
    parts = word_breaks._words_of("é," * (word_breaks._MAX_CACHED_CHARS // 2))
    size = sys.getsizeof(longest) + sys.getsizeof(parts) + _ENTRY
    assert word_breaks._CACHE_LIMIT * size < MOST
    monkeypatch.setattr(word_breaks, "_CACHE_LIMIT", 50)
    monkeypatch.setattr(word_breaks, "_cache", {})
    for number in range(500):
        assert word_breaks.split_unicode_words(f"it's{number} {longest}x{number}")
    assert len(word_breaks._cache) <= 50
    assert max(map(len, word_breaks._cache)) <= word_breaks._MAX_CACHED_CHARS


def test_statistics_of_terms_are_bounded() -> None:
    longest = "x" * word_breaks.LONGEST_WORD
    assert snapshot._TERMS_KEPT * (sys.getsizeof(longest) + 3 * _ENTRY) < MOST
