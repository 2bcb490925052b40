"""The neural models' words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.text import split_words
from glassrank.text.words import LONGEST_WORD, _cache, split_by_rules

BLINGFIRES = {
    "cannot": "can not",
    "cannot5": "cannot5",
    "CANNOT!": "can not !",
    "can't": "ca n't",
    "CAN'T": "ca n't",
    "don't5": "do n't 5",
    "n't": "n ' t",
    "isn't's": "is n't ' s",
    "it's": "it 's",
    "it's5": "it 's 5",
    "we'll": "we 'll",
    "we'LL": "we 'll",
    "we'Ll": "we ' ll",
    "o's": "o 's",
    "o'clock": "o' clock",
    "O`Neil": "o` neil",
    "l'amour": "l' amour",
    "Qu'est-ce": "qu' est - ce",
    "qu'il": "qu 'il",
    "rock'n'roll": "rock ' n ' roll",
    "a.b": "a.b",
    "a.b. x": "a.b. x",
    "a.b.": "a.b .",
    "a.b.'": "a.b . '",
    "U.S. \" '": "u.s . \" '",
    "the U.S. is": "the u.s. is",
    "U.S.A.F": "u.s.a.f",
    "e.g., x": "e.g. , x",
    "e.g.x": "e.g.x",
    "e.g.xy": "e . g . xy",
    "a.b5": "a . b5",
    "a.b.cd": "a . b . cd",
    "ab.c.d": "ab . c . d",
    "é.é. x": "é.é. x",
    "&.&. x": "&.&. x",
    "AT&T": "at&t",
    "x_y": "x_y",
    "a..b": "a . .b",
    "...": ". . .",
    "1,000": "1,000",
    "1,000.": "1,000 .",
    "1,000.50": "1,000.50",
    "1,0000": "1 , 0000",
    "01,000": "01 , 000",
    "1,000x": "1,000x",
    "3.14.": "3.14 .",
    "1.2.3": "1.2.3",
    "1.2.3.4": "1 . 2 . 3 . 4",
    "1.2.3x": "1.2.3x",
    "-5": "- 5",
    ".5": ".5",
    ".5.": ".5 .",
    "x.5": "x . 5",
    "5.a": "5 . a",
    "10bn": "10bn",
    "c++": "c++",
    "c++,": "c++ ,",
    "c+++": "c + + +",
    "c+5": "c+ 5",
    "A+": "a+",
    "a+b": "a + b",
    "C#": "c#",
    "D#m7": "d# m7",
    "a#é": "a # é",
    "h#b": "h # b",
    "F##": "f# #",
    ".net": ".net",
    ".mp3,": ".mp3 ,",
    ".net5_x": ".net5 _x",
    ".net55é": ".net5 5é",
    "www.example.org": "www . example . org",
    "x@example.org": "x @ example . org",
    "#tag": "# tag",
    "50%": "50 %",
    "$5": "$ 5",
    "a-b": "a - b",
    "^a`b": "a b",
    "naïve": "naïve",
    "中文字": "中文字",
    "x²": "x²",
    "½ cup": "½ cup",
    "😀": "😀",
    "“so”": "“ so ”",
    "a[] [[x]-] ‐]": "a [] [ [ x ] -] ‐]",  # noqa: RUF001
    "İstanbul": "i̇stanbul",
}
"""Texts, and the words of them that BlingFire 0.1.8 gives."""
ALPHABET = "acdelnostAGLNST0159.'’`+,#&_ é²§中[]‐-/\"\u200b\u2028İ\ud800"  # noqa: RUF001


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


@pytest.mark.parametrize("text", BLINGFIRES)
def test_words_are_those_of_the_papers_systems(text: str) -> None:
    assert split_words(text) == list(split_by_rules(text)) == BLINGFIRES[text].split()


def test_longer_words_are_cut() -> None:
    assert [len(word) for word in split_words("x" * 1000)] == [*[LONGEST_WORD] * 3, 100]


@given(text=st.text(ALPHABET, max_size=30) | st.text(max_size=30))
def test_the_fast_way_and_the_rules_agree(text: str) -> None:
    assert split_words(text) == split_words(text) == list(split_by_rules(text))


def test_what_is_remembered_is_bounded() -> None:
    split_words(" ".join(f"w{number}" for number in range(60_000)) + " " + "x" * 100)
    assert len(_cache) <= 50_000 and "x" * 100 not in _cache
