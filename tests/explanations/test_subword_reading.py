"""Texts as transformers read them: which characters each piece stands for, and what was cut."""

import unicodedata
from typing import Any

import pytest
from explain_cases import DEFINITION
from hypothesis import example, given
from hypothesis import strategies as st
from subword_cases import SUBWORDS, explain_subwords, make_subword_ranker, make_subword_reranker

from glassrank.explanations.reading import Subwords, read, read_subwords
from glassrank.explanations.structure import Side
from glassrank.explanations.subword_merging import group_subwords, merge_runs, share_evenly
from glassrank.rerank import Reranker

any_text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40) | st.text(
    alphabet="aAbreceptorΣς'İßẞ-.,()\u0301\u00ad\u200d\ufeff😀 日한\x85\u2028\0\n", max_size=30
)
sides: Any = pytest.mark.parametrize("side", ["query", "document"])


def read_text(text: str, longest: int = 99, most_words: int | None = None) -> Subwords:
    return read_subwords(tuple(SUBWORDS), True, text, longest, most_words)


def shown(text: str, found: Subwords) -> list[tuple[str, str | None]]:
    return [
        (word.text, None if word.start is None else text[word.start : word.stop])
        for word in found.words
    ]


def as_a_piece(characters: str) -> str:
    """What BERT makes of letters: small ones without accents, controls left out."""
    apart = unicodedata.normalize("NFD", characters)
    left_out = {"Mn", "Cc", "Cf", "Co", "Cn"}
    return "".join(c for c in apart if unicodedata.category(c) not in left_out).lower()


@pytest.mark.parametrize("most_words", [None, 99])
def test_pieces_point_at_their_characters(most_words: int | None) -> None:
    text = "Receptor, (Café\u0301 😀 cafe\u0301s): ÅR!"
    assert shown(text, read_text(text, most_words=most_words)) == [
        *[("[CLS]", None), ("recep", "Recep"), ("##tor", "tor"), (",", ","), ("(", "(")],
        *[("caf", "Caf"), ("##e", "é\u0301"), ("[UNK]", "😀"), ("caf", "caf"), ("##e", "e\u0301")],
        *[("##s", "s"), (")", ")"), (":", ":"), ("ar", "ÅR"), ("!", "!"), ("[SEP]", None)],
    ]


def test_a_character_of_several_pieces_is_the_last_ones() -> None:
    text = "a 한 b"
    assert shown(text, read_text(text))[1:-1] == [
        *[("a", "a"), ("\u1112", None), ("##\u1161", None), ("##\u11ab", "한"), ("b", "b")]
    ]


def test_a_text_that_speaks_of_special_pieces_has_them_as_text() -> None:
    text = "[SEP]"
    found = read_text(text)
    assert shown(text, found)[1:-1] == [
        *[("[", "["), ("s", "S"), ("##e", "E"), ("##p", "P"), ("]", "]")]
    ]


@pytest.mark.parametrize("most_words", [None, 3, 99])
@given(text=any_text)
@example(text="İstanbul'da ΟΔΟΣ. ẞ can't 日本語 한국어 receptor")
@example(text="\ufeff")
@example(text="a\u00adb e\u0301\u0301x \u0301")
@example(text="")
def test_spans_are_in_order_and_read_as_their_pieces(text: str, most_words: int | None) -> None:
    found = read_text(text, most_words=most_words)
    assert (found.words[0].text, found.words[-1].text) == ("[CLS]", "[SEP]")
    assert [SUBWORDS[number] for number in found.ids] == [word.text for word in found.words]
    at, letters = 0, ""
    for word in found.words[1:-1]:
        assert word.known == (word.text != "[UNK]")
        letters += word.text.removeprefix("##")
        if word.start is None or word.stop is None:
            continue  # one of several pieces of one character, of which the last has it
        assert at <= word.start < word.stop <= len(text)
        if word.known:
            assert as_a_piece(text[word.start : word.stop]) == letters
        at, letters = word.stop, ""
    assert not letters


@given(text=any_text)
def test_no_letter_is_forgotten(text: str) -> None:
    spans = [(word.start, word.stop) for word in read_text(text, 999).words]
    inside = "".join(text[start:stop] for start, stop in spans if start is not None)
    letters = [character for character in text if character.isascii() and character.isalnum()]
    assert [c for c in inside if c.isascii() and c.isalnum()] == letters


@given(text=any_text, longest=st.integers(2, 8), most_words=st.none() | st.integers(1, 5))
def test_what_is_read_is_the_begin_of_the_whole(
    text: str, longest: int, most_words: int | None
) -> None:
    whole, part = read_text(text, 999, most_words), read_text(text, longest, most_words)
    kept = len(part.words) - 2
    assert kept == min(longest - 2, len(whole.words) - 2)
    assert part.words[1:-1] == whole.words[1 : 1 + kept]
    assert part.cut_subwords == len(whole.words) - 2 - kept


@sides
@pytest.mark.parametrize("name", ["bert", "mores"])
def test_a_reading_is_what_the_ranker_reads(name: str, side: Side) -> None:
    """Ids are those that are ranked; BERT's document has no [CLS] of its own."""
    own = make_subword_reranker(
        make_subword_ranker(name, text={"query_words": 9, "doc_words": 12}), 7, 10
    )
    found = read(own, DEFINITION, side)
    longest, most = (7, 9) if side == "query" else (10, 12)
    (wanted,) = own.encoder.encode([DEFINITION], longest, most)
    assert found.batch.ids[0].tolist() == wanted.ids.tolist()
    words = [SUBWORDS[number] for number in wanted.ids]
    assert list(found.words) == (words[1:] if (name, side) == ("bert", "document") else words)
    assert found.text.cut == wanted.cut
    assert wanted.cut_words and wanted.cut_subwords


def notes(own: Reranker, query: str = "define", text: str = DEFINITION) -> str:
    return " ".join(explain_subwords(own, query, text).notes)


def test_what_was_cut_is_said() -> None:
    text = "receptor define androgen cells 😀"  # six pieces and an unknown one
    assert "cut" not in notes(make_subword_reranker(make_subword_ranker("mores")), text=text)
    own = make_subword_reranker(make_subword_ranker("mores"), doc_length=6, most_passages=1)
    assert "first 4 subwords of the document; 3 subwords were cut." in notes(own, text=text)
    own = make_subword_reranker(
        make_subword_ranker("mores", text={"doc_words": 3}), most_passages=1
    )
    assert "first 5 subwords of the document; 2 words were cut." in notes(own, text=text)
    own = make_subword_reranker(
        make_subword_ranker("mores", text={"doc_words": 3}), doc_length=6, most_passages=1
    )
    assert "first 4 subwords of the document; 1 subwords and 2 words were cut." in notes(
        own, text=text
    )
    own = make_subword_reranker(make_subword_ranker("mores"), query_length=4)
    assert "first 2 subwords of the query; 5 subwords were cut." in notes(own, query=text)
    own = make_subword_reranker(make_subword_ranker("mores"))
    assert "document's subwords 1 are not in the vocabulary" in notes(own, text=text)


def test_what_berts_positions_cut_is_said_too() -> None:
    """Query and document have 64 positions together; [SEP] goes first, and is no piece of text."""
    own = make_subword_reranker(make_subword_ranker("bert"), query_length=40, doc_length=48)
    query = " ".join(["cells"] * 30)  # and [CLS] and [SEP]: 32 are left
    text = " ".join(["define"] * 35)
    found = explain_subwords(own, query, text)
    assert len(found.doc.words) == len(found.marks) == 32
    assert (found.doc.cut, found.doc.words[-1].text) == (3, "define")
    assert "first 32 subwords of the document; 3 subwords were cut." in " ".join(found.notes)
    just_fits = explain_subwords(own, query, " ".join(["define"] * 31))
    assert (just_fits.doc.cut, just_fits.doc.words[-1].text) == (0, "[SEP]")
    without_end = explain_subwords(own, query, " ".join(["define"] * 32))
    assert (without_end.doc.cut, without_end.doc.words[-1].text) == (0, "define")


def test_words_are_runs_of_pieces() -> None:
    pieces = ["[CLS]", "a", "##b", "##c", "d", "[SEP]"]
    assert group_subwords(pieces) == [[1, 2, 3], [4]]
    assert group_subwords(["##b", "##c", "d"]) == [[0, 1], [2]]  # the text's begin
    words = [[place] for place in range(10)]
    runs = merge_runs(words, 4)
    assert [len(run) for run in runs] == [3, 3, 3, 1]
    assert [place for run in runs for place in run] == list(range(10))
    assert merge_runs(words, 10) == merge_runs(words, 99) == words
    assert merge_runs([], 4) == []
    assert share_evenly([3.0, 1.0], [[1, 2, 3], [4]], 6) == [0.0, 1.0, 1.0, 1.0, 1.0, 0.0]
