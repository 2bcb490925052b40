"""Terminal, HTML and JSON show the numbers of the model, to the last printed digit."""

import re
from dataclasses import replace

import pytest
import torch
from explain_cases import DEFINITION, QUERY, own_output, reranker, small_ensemble, small_ranker
from html_reader import Page
from rich.console import Console

from glassrank.explanations import compare, explain, html_page
from glassrank.explanations.structure import (
    WORDS_ADD,
    format_number,
    format_signed,
    is_coloured,
    superscript,
    to_letter,
)
from glassrank.explanations.terminal import draw, render_text
from glassrank.models import Ranker

NASTY = "<script>alert('androgen')</script> receptor\x1b[31m\x07 & \"define\" \u202e <img src=x>"


def expected_parts(model: Ranker) -> list[str]:
    """The model's own parts, printed: path, query word, kernel."""
    own = own_output(model, QUERY, DEFINITION).parts
    return [
        format_number(value)
        for path in ("log", "length")
        for row in own[path][0].tolist()
        for value in row
    ]


def test_html_shows_the_models_own_numbers() -> None:
    model = small_ranker("tk")
    own = own_output(model, QUERY, DEFINITION)
    page = Page(html_page(explain(reranker(model), QUERY, DEFINITION, doc_id="d1")))
    assert f"score {format_number(own.score.item())}" in page.text
    leaves = [value for depth, _, value in page.tree if depth == 4]
    assert leaves == expected_parts(model)
    similarity = page.tables["similarity"][1:]
    assert [row[1:] for row in similarity] == [
        [format_number(value) for value in column]
        for column in own.parts["similarity"][0].T.tolist()
    ]
    kernels = page.tables["Signals, raw values"]
    for path in ("log", "length"):
        place = kernels[0].index(path)
        sums = own.parts[path][0].double().sum(0).tolist()
        assert [row[place] for row in kernels[1:]] == [format_number(value) for value in sums]


def test_json_html_and_terminal_agree() -> None:
    found = explain(reranker(small_ranker("tk")), QUERY, DEFINITION)
    plain, page = found.to_json(), Page(html_page(found))
    terminal = render_text(draw(found, full=True), width=200)
    lines = [line.split() for line in terminal.splitlines()]
    for place, signal in enumerate(plain["signals"]):
        shares = signal["paths"]
        values = [value for s in shares for value in (s["weight"], s["signal"], s["value"])]
        printed = [format_number(value) for value in [*values, signal["value"]]]
        assert page.tables["Signals, raw values"][place + 1][4:] == printed
        assert [chr(97 + place), *signal["name"].split(), *printed] in lines
    for term in plain["terms"]:
        printed = [format_number(value) for value in [*term["paths"].values(), term["value"]]]
        word = plain["query"]["words"][term["word"]]["text"]
        assert page.tables["Query words, raw values"][term["word"] + 1][2:] == printed
        assert [word, *printed] in lines
    words = page.tables[WORDS_ADD][1:]
    shares = [format_signed(mark["share"]) for mark in plain["marks"]]
    assert [row[4] for row in words] == shares + [
        format_signed(part["value"]) for part in plain["rest"]
    ]
    for mark, hover in zip(plain["marks"], page.hovers, strict=True):
        near = plain["query"]["words"][mark["term"]]["text"]
        kernel = plain["signals"][mark["signal"]]["name"]
        assert hover == (
            f"similarity {format_number(mark['similarity'])} to “{near}”, {kernel}, "
            f"adds {format_signed(mark['share'])}"
        )


def test_a_document_is_shown_and_never_executed() -> None:
    found = explain(reranker(small_ranker("tk")), f"define {NASTY}", NASTY, doc_id="<b>d</b>")
    for shown in (found, compare(found, found)):
        page = Page(html_page(shown))
        assert not page.tags & {"script", "img", "link", "iframe"}
        assert "<script>alert('androgen')</script> receptor" in page.text
        assert not [n for n, _ in page.attributes if n.startswith("on") or n in ("src", "href")]
        terminal = render_text(draw(shown))
        assert "<script>" in terminal
        assert not set("\x1b\x07\u202e") & set(terminal + html_page(shown))


@pytest.mark.parametrize("name", ["tk", "rpacrr", "duet", "ensemble"])
def test_the_html_file_needs_nothing_else(name: str) -> None:
    model = small_ensemble() if name == "ensemble" else small_ranker(name)
    page = html_page(explain(reranker(model), QUERY, DEFINITION))
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|url\(|@import|<script|<link", page)
    assert "prefers-color-scheme: dark" in page
    assert page.encode("utf-8")


def test_the_text_is_whole_and_every_coloured_word_has_a_second_cue() -> None:
    cut = reranker(small_ranker("tk"), doc_length=9, most_passages=1)
    found = explain(cut, QUERY, DEFINITION)
    assert DEFINITION in Page(html_page(found)).text
    spans = re.findall(
        r'<span class="w( s\d+ t\d+)?" [^>]*>[^<]+(<sup[^/]+/sup>)?', html_page(found)
    )
    coloured = [
        word.is_content
        and mark.signal is not None
        and (mark.stands_out or found.signals[mark.signal].is_highlighted)
        for word, mark in zip(found.doc.words, found.marks, strict=True)
    ]
    assert [bool(classes) for classes, _ in spans] == coloured
    assert [bool(cue) for _, cue in spans] == coloured
    assert any(coloured)
    assert not all(coloured)
    plain = render_text(draw(found, full=True), width=300)
    letters = "".join(superscript(to_letter(place)) for place in range(len(found.signals)))
    assert len(re.findall(f"[{letters}]", plain.split("kernel 1.0")[0])) == sum(coloured)


def test_a_content_word_that_adds_is_coloured_however_far_it_is_from_the_query() -> None:
    found = explain(reranker(small_ranker("tk")), QUERY, DEFINITION)
    described = list(zip(found.doc.words, found.marks, strict=True))
    most = max(mark.share for word, mark in described if word.is_content)
    adds = [(word, mark) for word, mark in described if word.is_content and mark.share >= most / 10]
    assert adds and all(is_coloured(found, word, mark) for word, mark in adds)
    assert [pair for pair in described if pair[1].stands_out] == adds
    far = replace(found, signals=tuple(replace(s, is_highlighted=False) for s in found.signals))
    assert [pair for pair in described if is_coloured(far, *pair)] == adds


def test_the_terminal_is_short_until_somebody_asks_for_all() -> None:
    found = explain(reranker(small_ranker("tk")), QUERY, DEFINITION)
    pair = compare(found, explain(reranker(small_ranker("tk")), QUERY, "androgen in cells"))
    for shown in (found, pair):
        assert "kernel" not in str(shown) and len(str(shown).splitlines()) < 30
        assert "kernel 1.0" in render_text(draw(shown, full=True))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    found = explain(reranker(small_ranker("tk")), QUERY, DEFINITION)
    terminal = render_text(draw(found, full=True), width)
    assert "…" not in terminal
    for signal in found.signals:
        assert re.search(rf"{signal.name} .*{re.escape(format_number(signal.value))}", terminal)


def test_colours_are_there_for_those_who_see_them() -> None:
    console = Console(force_terminal=True, color_system="truecolor", width=100, record=True)
    with console.capture() as captured:
        console.print(draw(explain(reranker(small_ranker("tk")), QUERY, DEFINITION)))
    assert "38;2;" in captured.get()


def test_printed_numbers_are_the_same_for_numbers_of_any_kind() -> None:
    assert format_number(float(torch.tensor(0.12345))) == "0.1235"
    assert format_signed(-0.00004) == format_number(0.0) == "0.0000"
