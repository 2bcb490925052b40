"""A result explained in place: colours, cards, switches, the matrix, the sum."""

from typing import Any

import numpy as np
import pytest
from page_service import EMOJI, QUERY, Site
from playwright.sync_api import Page, Route, expect

from glassrank.errors import sanitize
from glassrank.explanations import Explanation, explain_docs, html_page
from glassrank.explanations.explainers import find_best_passage
from glassrank.explanations.reading import read_doc
from glassrank.explanations.structure import (
    format_number,
    format_signed,
    is_coloured,
    pick_colour,
    pick_line_style,
    to_letter,
)
from glassrank.rerank import Pipeline

OPEN_ALL = """async root => {
  for (let closed; (closed = root.querySelectorAll('details:not([open])')).length; ) {
    for (const one of closed) one.open = true;
    await new Promise(done => setTimeout(done, 50));
  }
}"""
TABLES = """root => [...root.querySelectorAll('table')].map(table => [
  table.caption.textContent,
  [...table.rows].map(row => [...row.cells].map(cell => cell.textContent)),
])"""
TREE = """root => [...root.querySelectorAll('.tree li')].map(line =>
  (line.querySelector(':scope > details > summary') ?? line).textContent.replaceAll(' ', ''))"""


def open_explanation(page: Page, doc_id: str = "ar", more: str = "") -> Any:
    page.goto(f"?q={QUERY}&doc={doc_id}{more}")
    panel = page.locator(f'[data-doc="{doc_id}"] .explanation')
    expect(panel.locator(".score-line")).to_be_visible()
    return panel


def own_explanation(page: Page, site: Site, doc_id: str, model: str = "tk") -> Explanation:
    """What the model says, asked without the service; the first stage's score is the list's."""
    first = page.request.post("search", data={"query": QUERY, "model": model}).json()
    hit = next(hit for hit in first["hits"] if hit["doc_id"] == doc_id)
    reranker, given = site.models[model], site.index.doc(doc_id)
    reading = read_doc(reranker, given, find_best_passage(reranker, QUERY, given))
    pipeline = Pipeline(site.index, reranker, calibrate=False)
    (found,) = explain_docs(pipeline, QUERY, [doc_id], first_scores=[hit["first_score"]])
    assert found.against is not None
    query, doc = reranker.encode_query(QUERY), reranker.encode_doc(reading.batch)
    (alone,) = reranker.score_embeddings(query, doc, np.array([hit["first_score"]], np.float32))
    assert format_number(found.score) == format_number(float(alone))
    return found


@pytest.mark.parametrize("model", ["tk", "knrm", "mores"])
def test_the_page_the_html_file_and_the_model_print_the_same_numbers(
    page: Page, site: Site, model: str
) -> None:
    panel = open_explanation(page, more=f"&model={model}")
    own = own_explanation(page, site, "ar", model)
    panel.evaluate(OPEN_ALL)
    expect(panel.locator(".heat-table, .words")).to_have_count(len(own.matrices) + 1)
    assert own.against is not None
    assert panel.locator(".sentence").inner_text() == own.against.sentence
    shown = dict(panel.evaluate(TABLES))
    lines = panel.evaluate(TREE)
    score = panel.locator(".score").inner_text()
    labels = panel.locator(".document-text .w").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label'))"
    )
    page.goto("about:blank")  # where the service's policy does not hold
    page.set_content(html_page(own))
    page.evaluate("document.querySelectorAll('sup').forEach(cue => cue.remove())")
    written = dict(page.locator("body").evaluate(TABLES))
    assert score == format_number(own.score) == page.locator("strong").inner_text()
    assert page.locator(".sentence").inner_text() == own.against.sentence
    assert set(shown) == set(written) and len(shown) == len(own.matrices) + 4
    for caption, rows in written.items():
        bars = len(shown[caption][0]) - len(rows[0])  # of the page, in a column of their own
        assert [row[: len(row) - bars] for row in shown[caption]] == rows
    assert lines == page.locator("body").evaluate(TREE)
    titles = page.locator(".w").evaluate_all("all => all.map(one => one.title)")
    assert all(title in label for title, label in zip(titles, labels, strict=True))


def test_words_have_the_colour_line_and_letter_of_their_kernel(page: Page, site: Site) -> None:
    panel = open_explanation(page, more="&by=signal")
    own = own_explanation(page, site, "ar")
    looks = panel.locator(".document-text .w").evaluate_all(
        """all => all.map(one => {
          const style = getComputedStyle(one);
          const on = one.classList.contains('on');
          return on && [style.textDecorationColor, style.textDecorationStyle,
                        one.querySelector('sup').textContent];
        })"""
    )
    assert any(looks) and len(looks) == len(own.marks)
    for seen, word, mark in zip(looks, own.doc.words, own.marks, strict=True):
        assert bool(seen) == is_coloured(own, word, mark)
        if seen:
            rgb = ", ".join(str(int(pick_colour(mark.signal)[at : at + 2], 16)) for at in (1, 3, 5))
            assert seen == [f"rgb({rgb})", pick_line_style(mark.signal), to_letter(mark.signal)]


def test_switches_take_colours_away_and_tell_what_is_left(page: Page, site: Site) -> None:
    panel = open_explanation(page)
    own = own_explanation(page, site, "ar")
    panel.get_by_role("radio", name="query word").check()
    cues = panel.locator(".document-text .w.on sup")
    coloured = cues.all_inner_texts()
    term = int(coloured[0]) - 1
    word = own.query.words[term].text
    panel.get_by_role("group", name="Query words").get_by_role("checkbox", name=word).uncheck()
    left = [cue for cue in coloured if cue != str(term + 1)]
    expect(cues).to_have_count(len(left))
    assert cues.all_inner_texts() == left
    off = {place for place, signal in enumerate(own.signals) if not signal.is_highlighted}
    rest = sum(
        leaf.value
        for path in own.parts.children
        for part in (path.children or (path,))
        if part.number != term or part.kind != "term"
        for leaf in part.leaves()
        if leaf.kind != "signal" or leaf.number not in off
    )
    expect(panel.locator(".subtotal b")).to_have_text(format_number(rest))
    page.reload()
    expect(cues).to_have_count(len(left))


def test_a_word_tells_similarity_kernel_and_contribution(page: Page, site: Site) -> None:
    panel = open_explanation(page)
    own = own_explanation(page, site, "ar")
    place = next(i for i, word in enumerate(own.doc.words) if word.text == "androgen")
    mark = own.marks[place]
    assert mark.term is not None and mark.signal is not None and mark.similarity is not None
    panel.locator(".document-text .w").nth(place).hover()
    card = page.locator(".card")
    expect(card.locator(".card-title")).to_have_text("androgen")
    near = own.query.words[mark.term].text
    assert card.locator("li").all_inner_texts() == [
        f"similarity {format_number(mark.similarity)} to “{near}”",
        own.signals[mark.signal].name,
        f"adds {format_signed(mark.share)}",
    ]
    page.mouse.move(0, 0)
    expect(card).to_be_hidden()


def test_cells_of_the_matrix_tell_their_words_and_number(page: Page, site: Site) -> None:
    panel = open_explanation(page)
    own = own_explanation(page, site, "ar")
    panel.get_by_text("Kernels and raw values").click()
    canvas = panel.locator("canvas")
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):  # the first enters
        page.keyboard.press(key)
    values = own.matrices[0].values
    told = (
        f"“{own.query.words[1].text}” and “{own.doc.words[2].text}”: {format_number(values[1][2])}"
    )
    expect(panel.locator(".readout")).to_have_text(told)
    expect(panel.locator(".w.pointed")).to_have_attribute("data-place", "2")
    drawn = canvas.evaluate(
        """canvas => {
          const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          return new Set(new Uint32Array(pixels.data.buffer)).size;
        }"""
    )
    assert drawn > 10  # scale_columns of many values, not one empty picture


def test_the_tree_adds_up_as_it_is_opened(page: Page, site: Site) -> None:
    panel = open_explanation(page)
    own = own_explanation(page, site, "ar")
    panel.get_by_text("Kernels and raw values").click()
    tree = panel.locator(".tree").last
    names = [part.name for part in own.parts.children]
    values = [format_number(part.value) for part in own.parts.children]
    inner = tree.locator(":scope > li > details > ul > li")
    expect(inner).to_have_count(len(values))  # drawn as it is opened
    assert [line.locator("b").first.inner_text() for line in inner.all()] == values
    inner.first.locator("summary").first.click()
    below = inner.first.locator(":scope > details > ul > li")
    terms = own.parts.children[0].children
    expect(below).to_have_count(len(terms))
    assert names[0] in inner.first.inner_text()
    assert [line.locator("b").first.inner_text() for line in below.all()] == [
        format_number(part.value) for part in terms
    ]


def test_characters_beyond_16_bits_and_turned_text_keep_their_places(page: Page) -> None:
    panel = open_explanation(page, "emoji")
    words = panel.locator(".document-text .w")
    page.evaluate("document.querySelectorAll('.w sup').forEach(cue => cue.remove())")
    assert panel.locator(".document-text").text_content() == sanitize(EMOJI)
    assert {"receptor", "mice", "define"} <= set(words.all_inner_texts())


def test_what_puts_it_above_the_others_comes_first(page: Page, site: Site) -> None:
    """By query word, in the table, on the switches and beside each word: one number everywhere."""
    panel = open_explanation(page)
    own = own_explanation(page, site, "ar")
    assert own.against is not None
    rows = dict(panel.evaluate(TABLES))[own.against.heading][1:]
    parts = (*own.against.parts.children, own.against.parts)
    assert [row[0] for row in rows] == [part.name for part in parts]
    assert [row[1].split()[0] for row in rows] == [format_signed(part.value) for part in parts]
    first = parts[0]
    chips = panel.get_by_role("group", name="Query words")
    expect(chips.locator(".chip").nth(first.number or 0)).to_contain_text(
        format_signed(first.value)
    )
    panel.locator(".query-text .w").nth(first.number or 0).hover()
    told = page.locator(".card li").all_inner_texts()
    assert told == [f"{format_signed(first.value)} against the others"]
    expect(panel.locator("canvas")).to_have_count(0)  # kernels and raw values are a click further
    expect(panel.get_by_role("group", name="Kernels")).to_be_hidden()


def test_a_calibrated_models_hits_have_a_bar_of_relevance(page: Page) -> None:
    """The small models of these tests are not calibrated: the answer is given one here."""

    def answered(route: Route) -> None:
        answer = route.fetch().json()
        for hit in answer["hits"]:
            hit["probability"] = 0.34
        route.fulfill(json=answer)

    page.route("**/search", answered)
    page.goto(f"?q={QUERY}")
    bar = page.get_by_role("img", name="relevance 4 of 5").first
    expect(bar).to_have_text("▮▮▮▮▯")
