"""Models over pieces, shown by whole words: every value is the sum of its pieces' values."""

import json
import math

import pytest
from explain_cases import DEFINITION, QUERY, THERAPY, small_ranker
from explain_cases import reranker as word_reranker
from html_reader import Page
from subword_cases import (
    SMALL_SUBWORD_MODELS,
    SUBWORDS,
    explain_subwords,
    make_subword_ranker,
    make_subword_reranker,
    own_reranker,
)

from glassrank.explanations import Explanation, compare, explain, html_page
from glassrank.explanations.structure import (
    WORDS_ADD,
    ScorePart,
    Word,
    format_number,
    format_signed,
)
from glassrank.explanations.terminal import draw, render_text
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.rerank import Reranker
from glassrank.research.papers.ensemble import Ensemble

every_model = pytest.mark.parametrize("name", sorted(SMALL_SUBWORD_MODELS))
KERNEL_WORDS = ["[CLS]", "androgen", "receptor", "define", "[SEP]"]


def both(name: str, text: str = DEFINITION) -> tuple[Explanation, Explanation]:
    """By pieces and by words."""
    own = own_reranker(name)
    return explain_subwords(own, QUERY, text), explain(own, QUERY, text)


def read_text(found: Explanation, word: Word) -> list[int]:
    """Of a document word: by where it stands, or by its name if it stands nowhere."""
    if word.start is None:
        return [place for place, piece in enumerate(found.doc.words) if piece.text == word.text]
    return [
        place
        for place, piece in enumerate(found.doc.words)
        if piece.start is not None and word.start <= piece.start < (word.stop or 0)
    ]


@every_model
def test_words_are_whole_and_stand_in_the_text(name: str) -> None:
    _, whole = both(name)
    assert [word.text for word in whole.query.words] == KERNEL_WORDS
    for text in (whole.query, whole.doc):
        assert not any(word.text.startswith("##") for word in text.words)
        for word in text.words:
            if word.start is not None:
                assert text.text[word.start : word.stop].lower() == word.text


@every_model
def test_every_value_is_the_sum_over_pieces(name: str) -> None:
    found, whole = both(name)
    terms = {found.query.words[term.word].text: term.value for term in found.terms}
    joined = {whole.query.words[term.word].text: term.value for term in whole.terms}
    assert joined["androgen"] == math.fsum([terms["andro"], terms["##gen"]])
    assert joined["receptor"] == math.fsum([terms["recep"], terms["##tor"]])
    assert joined["define"] == terms["define"]
    assert ("[CLS]" in joined) == ("[CLS]" in terms)
    counted = 0
    for word, mark in zip(whole.doc.words, whole.marks, strict=True):
        pieces = [found.marks[place] for place in read_text(found, word)]
        counted += len(pieces)
        assert mark.share == math.fsum(own.share for own in pieces)
        assert math.fsum(mark.by_signal) == pytest.approx(mark.share, abs=1e-5)
        if mark.by_term:
            assert len(mark.by_term) == len(whole.query.words)
            assert math.fsum(mark.by_term) == pytest.approx(mark.share, abs=1e-5)
    assert counted == len(found.doc.words)


@every_model
def test_all_sums_are_what_they_were(name: str) -> None:
    found, whole = both(name)

    def check(part: ScorePart) -> None:
        if part.children:
            assert part.value == pytest.approx(math.fsum(c.value for c in part.children), abs=1e-5)
        for child in part.children:
            check(child)

    check(whole.parts)
    assert (whole.parts.value, whole.score) == (found.parts.value, found.score)
    shares = math.fsum(mark.share for mark in found.marks)
    assert math.fsum(mark.share for mark in whole.marks) == pytest.approx(shares, abs=1e-9)
    assert [signal.value for signal in whole.signals] == [s.value for s in found.signals]
    leaves = [leaf for leaf in whole.parts.leaves() if leaf.kind == "term"]
    assert all(not leaf.name.startswith("##") for leaf in leaves)


@every_model
def test_terminal_and_html_show_words(name: str) -> None:
    whole = explain(own_reranker(name), QUERY, DEFINITION)
    text, page = render_text(draw(whole), width=200), Page(html_page(whole))
    assert "##" not in text and "##" not in page.text
    lines = [line.split() for line in text.splitlines()]
    rows = page.tables["Query words, raw values"][1:]
    for term, row in zip(whole.terms, rows, strict=True):
        word = whole.query.words[term.word].text
        assert row[1] == word and row[-1] == format_number(term.value)
        assert any(line[:1] == [word] and line[-1] == format_number(term.value) for line in lines)
    words = page.tables[WORDS_ADD][1:]
    assert [row[0] for row in words][: len(whole.doc.words)] == [w.text for w in whole.doc.words]
    assert [row[4] for row in words][: len(whole.marks)] == [
        format_signed(m.share) for m in whole.marks
    ]


@every_model
def test_two_documents_are_compared_by_words(name: str) -> None:
    apart, whole = zip(*(both(name, text) for text in (DEFINITION, THERAPY)), strict=True)
    shown = compare(*whole)
    text, page = render_text(draw(shown), width=200), Page(html_page(shown))
    assert "##" not in text and "##" not in page.text
    pieces = [row for row in compare(*apart).differences if row.group == "term" and not row.path]
    expected = format_signed(
        math.fsum(row.difference for row in pieces if row.name in ("andro", "##gen"))
    )
    rows = [row for row in page.tables["Left minus right"] if row[:2] == ["androgen", ""]]
    assert {row[4].split()[0] for row in rows} == {expected}


def test_attention_stays_a_share_and_similarity_a_similarity() -> None:
    for name in ("bert", "mores"):
        found, whole = both(name)
        for matrix, joined in zip(found.matrices, whole.matrices, strict=True):
            assert matrix.attention
            if matrix.rows == matrix.columns and name == "mores":
                assert all(math.fsum(row) == pytest.approx(1, abs=1e-5) for row in joined.values)
    found, whole = both("maxsim")
    (matrix,), (joined,) = found.matrices, whole.matrices
    assert not matrix.attention
    assert len(joined.values) == len(whole.query.words)
    assert {len(row) for row in joined.values} == {len(whole.doc.words)}
    assert max(map(max, joined.values)) == max(map(max, matrix.values))


@pytest.mark.parametrize(
    ("query", "text"), [("", ""), (QUERY, ""), ("", DEFINITION), ("é", "한국")]
)
@every_model
def test_texts_of_any_kind(name: str, query: str, text: str) -> None:
    found = explain(own_reranker(name), query, text)
    assert "##" not in str(found)
    assert Explanation.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert html_page(found)


def test_an_ensemble_is_shown_by_words_too() -> None:
    members = [make_subword_ranker("maxsim"), make_subword_ranker("mores")]
    saved = SavedModel(Ensemble(members, [(16, 40), (16, 48)]), Usage(16, 48), SUBWORDS)
    found = explain_subwords(Reranker(saved, exact=True), QUERY, DEFINITION)
    whole = explain(Reranker(saved, exact=True), QUERY, DEFINITION)
    assert [word.text for word in whole.query.words] == KERNEL_WORDS
    assert whole.parts.value == pytest.approx(found.parts.value, abs=1e-6)
    assert "##" not in str(whole)


def test_a_model_on_words_is_left_as_it_is() -> None:
    """Even where its words look like pieces."""
    own = word_reranker(small_ranker("tk"))
    text = "receptor ##tor [CLS]"
    assert explain(own, QUERY, text) == explain_subwords(own, QUERY, text)
    found = explain(own, "[CLS] ##tor", text)
    assert found == explain_subwords(own, "[CLS] ##tor", text)


def test_a_word_of_one_piece_keeps_its_mark() -> None:
    own = make_subword_reranker(make_subword_ranker("kernel_bert"))
    found, whole = (ask(own, "define", "cells of cells") for ask in (explain_subwords, explain))
    assert whole.marks == found.marks and whole.terms == found.terms
