"""Words by Unicode's rules: the fast path against the rules, and texts with their words."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glassrank.text.analysis import (
    LONGEST_WORD,
    _word,
    _words_of,
    split_unicode_words,
    word_spans,
)

# Every class that a rule speaks of, and what Python and Unicode see differently.
SPECIAL = [
    *"aZ9 \n\t_.,;:'\"-#*/@",
    *"\u2019\uff07\u2018\u00b7\u2027\ufe55\uff0e",  # quotes and dots inside words
    *"éßİΣ\u0301\u0308\u00ad\u200d\u200c\ufeff",  # marks, soft hyphen, joiners
    *"אבג\u05f3\u05f4",  # Hebrew and its own quotes
    *"カナー・ひら漢字",
    *"한국\u1112\u1161\u11ab",  # Hangul, as syllables and as jamo
    *"ไทยမြ",
    *"😀👍🏽👩💻❤\ufe0f🇫🇷\u20e3",
    *"\u00a0\u202f\u200b\u2028\x1c\x85\u3000",  # spaces, some of which Python splits at
    *"٣¾²Ⅷ",  # digits, and what only looks like them
    *"\x00\U000e0067\U0001f3f4",
]  # fmt: skip
texts = st.text(st.one_of(st.sampled_from(SPECIAL), st.characters()), max_size=30)


@given(text=texts)
@example(text='מ\u05f4ם צה"ל 1#\ufe0f\u20e3')
@example(text="a\u202fb c\u00a0d")
@settings(max_examples=1000, deadline=None)
def test_the_fast_path_agrees_with_the_rules(text: str) -> None:
    assert split_unicode_words(text) == _words_of(text)


@given(text=texts)
@settings(max_examples=300, deadline=None)
def test_words_seen_before_come_out_the_same(text: str) -> None:
    assert split_unicode_words(text) == split_unicode_words(text)  # the second time from the cache


@given(text=texts)
@settings(max_examples=300, deadline=None)
def test_spans_are_where_the_words_stand(text: str) -> None:
    assert [text[start:stop] for start, stop in word_spans(text)] == split_unicode_words(text)


@given(length=st.integers(1, 3 * LONGEST_WORD + 5), letter=st.sampled_from("xé"))
@settings(max_examples=50, deadline=None)
def test_long_words_are_cut_into_pieces(length: int, letter: str) -> None:
    whole, rest = divmod(length, LONGEST_WORD)
    expected = [letter * LONGEST_WORD] * whole + [letter * rest] * (rest > 0)
    assert split_unicode_words(letter * length) == expected
    assert [stop - start for start, stop in word_spans(letter * length)] == list(map(len, expected))


def test_a_long_run_of_joiners_is_no_word_and_takes_no_time() -> None:
    assert split_unicode_words("_" * 100_000 + " a") == ["a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # between letters . : ' stay, between digits . , do, and mixed they do not
        ("version 2.7.18 of tool.py", "version|2.7.18|of|tool.py"),
        ("12,500.25 and 3, 4", "12,500.25|and|3|4"),
        ("v.2 2.v v,w 7:45 key:value", "v|2|2|v|v|w|7|45|key:value"),
        ("P.S. ends... here.", "P.S|ends|here"),
        ("the cat's, cats', 'cat' isn't", "the|cat's|cats|cat|isn't"),
        ("l\u2019eau aujourd\uff07hui", "l\u2019eau|aujourd\uff07hui"),
        ("snake_case __init__ _ arm_64", "snake_case|__init__|arm_64"),
        ("A-B/C+D=E&F|G~H", "A|B|C|D|E|F|G|H"),
        ("C++ F# #tag @name $5 50%", "C|F|tag|name|5|50"),
        # marks and format characters belong to the letter before them
        ("cafe\u0301 auto\u00admatic", "cafe\u0301|auto\u00admatic"),
        ("zero\u200bspace", "zero|space"),
        ("half\u202fspace no\u00a0break", "half\u202fspace|no|break"),
        # scripts
        ("Größe Ελλάδα дом", "Größe|Ελλάδα|дом"),
        ("東京 ひらがな", "東|京|ひ|ら|が|な"),
        ("カタカナ語 コーヒー", "カタカナ|語|コーヒー"),
        ("서울 역", "서울|역"),
        ("กรุงเทพ city", "กรุงเทพ|city"),
        ("שלום צה\"ל ג'", "שלום|צה\"ל|ג'"),
        # emoji: one token with its modifiers, joined faces, flags, keycaps
        ("ok 👋🏿 👩\u200d🚀", "ok|👋🏿|👩\u200d🚀"),
        ("🇩🇪🇮🇹 5\ufe0f\u20e3", "🇩🇪|🇮🇹|5\ufe0f\u20e3"),
        ("", ""),
        (" \t\n.,;:!?…", ""),
    ],
)
def test_words_of_a_text(text: str, expected: str) -> None:
    assert split_unicode_words(text) == (expected.split("|") if expected else [])


def test_sentences_need_no_rules() -> None:
    """Compiling the rules takes longer than ranking a text."""
    _word.cache_clear()
    text = "A dog, a cat; 'both' ate: nothing... (No one did.) \"Why?\" - x1: x1 ..."
    assert split_unicode_words(text) == (
        "A dog a cat both ate nothing No one did Why x1 x1".split()
    )
    assert not _word.cache_info().currsize
