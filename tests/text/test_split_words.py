"""The neural models' words."""

from hypothesis import given
from hypothesis import strategies as st

from glassrank.text import split_words


def test_punctuation_and_function_words_stay() -> None:
    assert split_words("The cat, it's said, can't swim!") == [
        *["the", "cat", ",", "it", "'s", "said", ",", "ca", "n't", "swim", "!"]
    ]


def test_everything_is_lower_cased() -> None:
    assert split_words("NASA Größe ÉCOLE") == ["nasa", "größe", "école"]


def test_an_empty_text_has_no_words() -> None:
    assert split_words("") == split_words(" \n\t ") == []


def test_a_nul_does_not_end_the_text() -> None:
    assert split_words("before\0after") == ["before", "after"]


def test_half_a_surrogate_pair_is_no_error() -> None:
    assert split_words("before \ud800 after")[::2] == ["before", "after"]


@given(text=st.text(max_size=40))
def test_no_word_has_a_space_in_it(text: str) -> None:
    assert all(len(word.split()) == 1 for word in split_words(text))
