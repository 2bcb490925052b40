"""Words to numbers and back."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.errors import InputError
from glassrank.text import Vocabulary
from glassrank.text.words import PADDING, UNKNOWN

# What `split_words` can give: no white space. Other Unicode line breaks must not split a file.
words = st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=8)


@given(texts=st.lists(st.lists(st.sampled_from("abcdef")), max_size=8), least=st.integers(1, 4))
def test_words_that_occur_often_enough_by_frequency_then_alphabet(
    texts: list[list[str]], least: int
) -> None:
    counts = Counter(word for text in texts for word in text)
    expected = sorted((-n, word) for word, n in counts.items() if n >= least)
    assert Vocabulary.build(texts, min_count=least).words[2:] == tuple(w for _, w in expected)


def test_ids_and_words_are_inverse() -> None:
    vocabulary = Vocabulary(["cat", "mat"])
    ids = vocabulary.ids(["mat", "cat"])
    assert [vocabulary.words[i] for i in ids] == ["mat", "cat"]
    assert ids.dtype == "int32"


def test_an_unknown_word_has_the_unknown_id() -> None:
    assert Vocabulary(["cat"]).ids(["dog", "cat", ""]).tolist() == [UNKNOWN, 2, UNKNOWN]


def test_a_text_cannot_name_the_special_words() -> None:
    vocabulary = Vocabulary.build([["<pad>", "<unk>", "cat"]], min_count=1)
    assert vocabulary.words == ("<pad>", "<unk>", "cat")
    assert vocabulary.ids(["<pad>", "<unk>"]).tolist() == [UNKNOWN, UNKNOWN]
    assert "<pad>" not in vocabulary
    assert PADDING not in vocabulary.ids(["<pad>", "cat"])


@pytest.mark.parametrize("twice", ["cat", "<unk>"])
def test_a_word_that_comes_twice_is_refused(twice: str) -> None:
    with pytest.raises(InputError, match=f"'{twice}' appears twice"):
        Vocabulary(["cat", "dog", twice])


@given(some=st.lists(words, min_size=1))
def test_unknown_words_have_buckets_by_their_hash(some: list[str]) -> None:
    vocabulary = Vocabulary(["cat"], buckets=7)
    ids = vocabulary.ids(["cat", *some])
    assert ids[0] == 2
    for word, number in zip(some, ids[1:].tolist(), strict=True):
        assert number == 2 if word == "cat" else 3 <= number < vocabulary.rows == 10
    assert vocabulary.ids(some).tolist() == ids[1:].tolist()


def test_buckets_are_the_same_on_every_machine() -> None:
    assert Vocabulary(["cat"], buckets=1000).ids(["dog", "<pad>", "naïve"]).tolist() == [
        168,
        924,
        177,
    ]


def test_no_more_words_than_asked_for() -> None:
    texts = [["a", "a", "b", "b", "b", "c"]]
    assert Vocabulary.build(texts, min_count=1, max_words=2).words[2:] == ("b", "a")
