"""The part of a text that is shown, and what is marked in it."""

import random
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassrank.index import snippets
from glassrank.index.snippets import Snippet, SnippetMaker, word_prefix
from glassrank.text import EnglishAnalyzer
from glassrank.text.analysis import word_spans

ANALYZER = EnglishAnalyzer()


def snippet(text: str, query: str, length: int = 240) -> Snippet:
    return SnippetMaker(query, ANALYZER)(text, length)


def marked(snippet: Snippet) -> str:
    """The text with its matches in brackets."""
    out, at = [], 0
    for start, stop in snippet.matches:
        out += [snippet.text[at:start], "[", snippet.text[start:stop], "]"]
        at = stop
    return "".join([*out, snippet.text[at:]])


def test_all_forms_of_the_querys_words_are_marked() -> None:
    found = snippet("The CAT's cats chased a catalogue.", "cat chasing the")
    assert marked(found) == "The [CAT's] [cats] [chased] a catalogue."


def test_a_short_text_is_shown_whole() -> None:
    assert snippet("Cats purr.", "dog", 10) == Snippet("Cats purr.", ())


def test_without_a_match_the_beginning_is_shown() -> None:
    assert snippet("one two three four five", "six", 12).text == "one two …"


def test_the_part_with_most_different_words_is_shown() -> None:
    text = "Owls. " * 20 + "Then an owl met a fox." + " Foxes." * 20
    assert "[owl] met a [fox]" in marked(snippet(text, "owl fox", 60))


def test_lines_are_joined() -> None:
    assert marked(snippet("one\n\n  two\tthree ", "two")) == "one [two] three"


def test_markup_in_the_text_is_left_as_it_is() -> None:
    found = snippet("if a<b && <script>alert('cat')</script> &amp;", "cat")
    assert marked(found) == "if a<b && <script>alert('[cat]')</script> &amp;"


def test_letters_that_lower_in_their_own_ways_are_marked() -> None:
    assert marked(snippet("İzmir, ΟΔΟΣ, Größe, 東京", "izmir οδοσ GRÖSSE größe 京")) == (
        "[İzmir], [ΟΔΟΣ], [Größe], 東[京]"
    )


def test_a_word_longer_than_the_snippet_is_shown_as_far_as_it_fits() -> None:
    text = "y" * 50 + " " + "x" * 200 + " bb" * 100
    assert snippet(text, "x" * 200, 60).text == "… " + "x" * 50 + " …"


def test_nothing_and_a_query_of_nothing() -> None:
    assert snippet("", "cat") == Snippet("", ())
    assert snippet("A cat.", "") == Snippet("A cat.", ())


@given(
    words=st.lists(st.sampled_from(["owl", "Owls", "fox", "naïve", "x" * 30, "—", "the"])),
    query=st.sampled_from(["owl", "fox naive", "naïve", "x" * 30, "the", ""]),
    length=st.integers(10, 80),
)
@settings(deadline=None)
def test_a_snippet_is_a_part_of_the_text_cut_between_words(
    words: list[str], query: str, length: int
) -> None:
    text = " ".join(words)
    found = snippet(text, query, length)
    shown = found.text.removeprefix("… ").removesuffix(" …")
    assert shown in text
    assert len(shown) <= length
    if max(map(len, words), default=0) <= length // 2:
        assert set(shown.split()) <= set(words)  # whole words only
    wanted = set(ANALYZER(query))
    for start, stop in found.matches:
        assert ANALYZER(found.text[start:stop])[0] in wanted
    if wanted & set(ANALYZER(text)) and max(map(len, words)) <= length // 2:
        assert found.matches  # what was found is shown


SUFFIXES = (
    "s sses ies eed ed ing ational tional enci anci izer abli alli entli eli ousli ization ation "
    "ator alism iveness fulness ousness aliti iviti biliti bli logi icate ative alize iciti ical "
    "ful ness ance ence er ic able ible ant ement ment ent ion ism ate ous ive ize e ll y ly bility"
).split()


def test_words_begin_as_their_terms_do() -> None:
    """A snippet looks for no others. Every two suffixes, each after nine beginnings."""
    drawn = random.Random(0)
    for suffixes in [(), *product(SUFFIXES), *product(SUFFIXES, repeat=2)]:
        for _ in range(9):
            beginning = "".join(drawn.choices("abeilosty'é", k=drawn.randint(0, 6)))
            word = beginning + "".join(suffixes)
            assert word.startswith(word_prefix(ANALYZER.term(word))), word


@given(
    text=st.text("abcé .'_-1\u0301京", max_size=200),
    query=st.text("abcé .'_-1京", max_size=6),
    length=st.integers(6, 60),
)
@settings(max_examples=1000, deadline=None)
def test_every_match_is_found_where_only_some_words_are_looked_at(
    text: str, query: str, length: int
) -> None:
    wanted = set(ANALYZER(query))
    found = snippet(text, query, 10_000)
    spans = [found.text[start:stop] for start, stop in word_spans(found.text)]
    assert [found.text[start:stop] for start, stop in found.matches] == [
        word for word in spans if ANALYZER.term(word) in wanted
    ]
    shown = snippet(text, query, length)
    assert len(shown.text.removeprefix("… ").removesuffix(" …")) <= length


def test_of_a_long_text_little_is_cut_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what takes the time."""
    looked_at: list[str] = []

    def noting(text: str) -> Iterator[tuple[int, int]]:
        looked_at.append(text)
        return word_spans(text)

    monkeypatch.setattr(snippets, "word_spans", noting)
    text = "many words, and so on. " * 800 + "How to read a csv file. " + "And so on. " * 90
    found = snippet(text, "read csv file")
    assert "to [read] a [csv] [file]." in marked(found)
    assert len("".join(looked_at)) < 100


def test_a_snippet_of_a_passage_stands_within_it() -> None:
    text = "The cat sat. " * 40 + "A dog and a cat ran. " * 20 + "The end. " * 40
    start, stop = 13 * 40, 13 * 40 + 21 * 20
    snippets = SnippetMaker("cat", ANALYZER)
    found = snippets(text, 100, (start, stop))
    assert found.text.startswith("… ") and found.text.endswith(" …")
    assert "dog" in found.text and "sat" not in found.text
    assert {found.text[a:b] for a, b in found.matches} == {"cat"}
    short = snippets(text, 100, (start, start + 21))  # with what is before it
    assert len(short.text) > 60
