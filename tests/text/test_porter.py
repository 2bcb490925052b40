"""Stems, as the author's own program gives them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.text.english import stem

PAIRS = """
    caresses:caress ponies:poni ties:ti cats:cat caress:caress
    feed:feed agreed:agre plastered:plaster bled:bled motoring:motor sing:sing
    conflated:conflat troubled:troubl sized:size hopping:hop falling:fall hissing:hiss
    fizzed:fizz failing:fail filing:file happy:happi sky:sky
    conditional:condit rational:ration digitizer:digit vietnamization:vietnam
    operator:oper feudalism:feudal decisiveness:decis hopefulness:hope sensitivity:sensit
    triplicate:triplic formative:form formalize:formal electrical:electr goodness:good
    revival:reviv inference:infer adjustable:adjust replacement:replac adoption:adopt
    homologous:homolog effective:effect probate:probat rate:rate cease:ceas
    controlling:control roll:roll generalizations:gener oscillators:oscil
"""
DEPARTURES = "possibly:possibl technology:technolog us:us"
"""Where the program differs from the article."""


@pytest.mark.parametrize(
    ("word", "expected"),
    [pair.split(":") for pair in (*PAIRS.split(), *DEPARTURES.split())],
)
def test_stem(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [("skies", "ski"), ("dying", "dy"), ("news", "new"), ("being", "be"), ("yes", "ye")],
)
def test_no_exceptions_are_made_as_later_stemmers_do(word: str, expected: str) -> None:
    assert stem(word) == expected


@given(word=st.text(max_size=2))
def test_words_of_two_letters_stay(word: str) -> None:
    assert stem(word) == word


@given(word=st.text(st.sampled_from("abeilnostyz"), min_size=3, max_size=12))
def test_a_stem_is_not_longer_and_begins_as_the_word_does(word: str) -> None:
    found = stem(word)
    assert len(found) <= len(word)
    assert found[0] == word[0]


@given(word=st.text(st.characters(categories=["Lo", "Nd"]), max_size=10))
def test_words_without_latin_letters_stay(word: str) -> None:
    assert stem(word) == word
