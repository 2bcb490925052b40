"""Lucene's English analysis, step by step."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.text import EnglishAnalyzer
from glassrank.text.analysis import lower_case
from glassrank.text.english import STOP_WORDS


@pytest.fixture(scope="module")
def analyze() -> EnglishAnalyzer:
    return EnglishAnalyzer()


@pytest.mark.parametrize("quote", ["'", "\u2019", "\uff07"])
def test_a_possessive_goes_with_any_apostrophe(analyze: EnglishAnalyzer, quote: str) -> None:
    assert analyze(f"Newton{quote}s NEWTON{quote}S Newtons{quote}") == ["newton"] * 3


def test_an_apostrophe_inside_a_word_stays(analyze: EnglishAnalyzer) -> None:
    assert analyze("can't O'Brien rock'n'roll") == ["can't", "o'brien", "rock'n'rol"]


def test_stop_words_are_removed_in_any_case(analyze: EnglishAnalyzer) -> None:
    assert analyze(" ".join([*STOP_WORDS, *map(str.upper, STOP_WORDS)])) == []
    assert len(STOP_WORDS) == 33


def test_stop_words_go_before_stemming(analyze: EnglishAnalyzer) -> None:
    assert analyze("being ass noted nots") == ["be", "ass", "note", "not"]


def test_the_possessive_of_a_stop_word_is_a_stop_word(analyze: EnglishAnalyzer) -> None:
    assert analyze("it's that's he's") == ["he"]


def test_lower_case_is_one_character_for_one(analyze: EnglishAnalyzer) -> None:
    assert analyze("İZMİR ΟΔΟΣ ΛΟΓΟΣ") == ["izmir", "οδοσ", "λογοσ"]


def test_lower_case_keeps_positions_for_every_character() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert len(lower_case(everything)) == len(everything)


def test_numbers_and_codes_are_terms(analyze: EnglishAnalyzer) -> None:
    assert analyze("IL-6, B12 and 3.5 x86_64") == ["il", "6", "b12", "3.5", "x86_64"]


@given(
    texts=st.lists(st.text(st.sampled_from("abcdeSs' \u2019İΣ."), max_size=30), max_size=4),
)
def test_what_was_seen_before_changes_nothing(texts: list[str]) -> None:
    used = EnglishAnalyzer()
    for text in texts:
        assert used(text) == EnglishAnalyzer()(text)


def test_a_full_memory_of_words_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassrank.text.analysis._CACHE_LIMIT", 2)
    analyze = EnglishAnalyzer()
    assert analyze("cats dogs birds cats") == ["cat", "dog", "bird", "cat"]
    assert analyze._cached_term.cache_info().currsize <= 2
