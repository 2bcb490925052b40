"""Where words stand in a text: for any text, never an error."""

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glassrank.explanations.reading import _lower, _lower_one_by_one, joined_origins, word_spans
from glassrank.text import split_words

any_text = st.text(alphabet=st.characters(), max_size=60) | st.text(
    alphabet="aAΣ\u03c3ς'İßẞ-.,()\u0301\u00ad\u200d\ufeff\ud800😀 日\x85\u2028\0\n", max_size=30
)


def as_the_tokenizer_has_it(text: str) -> str:
    """Final sigmas depend on what follows, which a slice does not show."""
    return text.encode("utf-8", "replace").decode().lower().replace("ς", "\u03c3")


@given(text=any_text)
@example("İstanbul'da ΟΔΟΣ. ẞ can't \ud800 日本語")
@example("\ufeff")
def test_every_word_is_found_and_its_span_reads_as_the_word(text: str) -> None:
    words = split_words(text)
    spans = word_spans(text, words)
    at = 0
    for word, span in zip(words, spans, strict=True):
        assert span is not None
        start, stop = span
        assert at <= start < stop <= len(text)
        assert as_the_tokenizer_has_it(text[start:stop]) == as_the_tokenizer_has_it(word)
        at = stop


@given(text=any_text)
def test_nothing_but_what_the_tokenizer_leaves_out_lies_between_spans(text: str) -> None:
    spans = [span for span in word_spans(text, split_words(text)) if span]
    inside = "".join(text[start:stop] for start, stop in spans)
    letters = [character for character in text if character.isascii() and character.isalnum()]
    assert [c for c in inside if c.isascii() and c.isalnum()] == letters


@given(text=any_text, words=st.lists(st.text(max_size=5), max_size=8))
def test_words_of_another_text_are_no_error(text: str, words: list[str]) -> None:
    spans = word_spans(text, words)
    assert len(spans) == len(words)
    assert all(0 <= span[0] < span[1] <= len(text) for span in spans if span)


@given(text=any_text)
@example("ΟΔΟΣ Σ ΑΣΣ. Σ'")
def test_the_short_way_to_small_letters_is_the_long_way(text: str) -> None:
    """Where no letter becomes two."""
    sound = text.encode("utf-8", "replace").decode()
    lowered, origins = _lower(text)
    slowly, slow_origins = _lower_one_by_one(sound)
    assert (lowered, list(origins)) == (slowly, slow_origins)


@pytest.mark.long
def test_only_a_sigma_looks_at_its_neighbours() -> None:
    """What the short way relies on: any other character is the same small one, or ones, anywhere.
    And none has no small form at all, so that equal lengths mean one for one."""
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if character != "Σ":
            assert f"a{character}a {character}".lower() == "a{0}a {0}".format(character.lower())
        assert character.lower()


@given(text=any_text)
@example("İstanbul'da ΟΔΟΣ. ẞ can't \ud800 日本語")
def test_joined_words_know_where_they_come_from(text: str) -> None:
    words = split_words(text)
    origins = joined_origins(text, words)
    joined = " ".join(words)
    assert len(origins) == len(joined)
    for character, origin in zip(joined, origins, strict=True):
        assert (origin is None) == (character == " ")
        if origin is not None:
            own = as_the_tokenizer_has_it(text[origin])
            assert character.replace("ς", "\u03c3") in own
    found = [origin for origin in origins if origin is not None]
    assert found == sorted(found)
