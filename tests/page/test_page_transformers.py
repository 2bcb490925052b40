"""A transformer on the page: its words are drawn where they stand, and change whole."""

import re
from typing import Any

from page_service import DEFINITION, QUERY, Site
from playwright.sync_api import Page, expect

from glassrank.explanations import Change, compare, explain, what_if
from glassrank.explanations.structure import format_number

DRAWN = """canvas => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(pixels.data.buffer)).size;
}"""


def open_mores(page: Page, more: str = "") -> Any:
    page.goto(f"?q={QUERY}&model=mores&doc=ar{more}")
    panel = page.locator('[data-doc="ar"] .explanation')
    expect(panel.locator(".score-line")).to_contain_text("approximate parts · mores")
    return panel


def test_words_are_drawn_where_they_stand(page: Page, site: Site) -> None:
    panel = open_mores(page)
    own = explain(site.models["mores"], QUERY, site.index.doc("ar"))
    expect(panel.locator(".score")).to_have_text(format_number(own.score))
    page.evaluate("document.querySelectorAll('.w sup').forEach(cue => cue.remove())")
    in_text = [word for word in own.doc.words if word.start is not None]
    assert len(in_text) == len(own.doc.words) - 2  # without [CLS] and [SEP]
    assert panel.locator(".document-text .w").all_inner_texts() == [
        own.doc.text[word.start : word.stop] for word in in_text
    ]
    assert DEFINITION in (panel.locator(".document-text").text_content() or "")
    panel.get_by_text("Kernels and raw values").click()
    maps = panel.locator("canvas")
    expect(maps).to_have_count(4)
    assert panel.locator("figcaption").all_inner_texts() == [m.name for m in own.matrices]
    assert all(maps.nth(place).evaluate(DRAWN) > 10 for place in range(4))
    for note in own.notes:
        expect(panel.locator(".notes")).to_contain_text(note)


def test_a_word_of_several_pieces_changes_whole(page: Page, site: Site) -> None:
    panel = open_mores(page)
    word = panel.locator(".document-text .w", has_text=re.compile("^receptor")).first
    place = int(word.get_attribute("data-place") or "")
    word.click()
    page.get_by_label("Replace “receptor” by").fill("mice")
    page.keyboard.press("Enter")
    expect(panel.locator(".what-if-title")).to_have_text("With “mice” instead of “receptor”")
    expect(panel.locator(".move")).to_have_count(2)
    removed = panel.locator(".document-text .w.removed")
    assert [text[:8] for text in removed.all_inner_texts()] == ["receptor"]
    expect(panel.locator(".instead")).to_have_text("mice")
    found = [hit.doc_id for hit in site.index.search(QUERY, 100, "bm25")]
    texts = [site.index.doc(doc_id) for doc_id in found]
    doc = found.index("ar")
    answer = what_if(site.models["mores"], QUERY, texts, Change("document", place, "mice"), doc=doc)
    assert "androgen mice" in answer.text
    moved = panel.locator(".move").first.inner_text().replace("\xa0", " ")
    before, after = answer.moved[doc].score_before, answer.moved[doc].score_after
    assert moved.startswith(f"score {format_number(before)} → {format_number(after)}")


def test_a_transformer_stands_beside_another_model(page: Page, site: Site) -> None:
    answer = page.request.post(
        "explain", data={"query": QUERY, "text": DEFINITION, "model": ["mores", "knrm"]}
    ).json()
    pair = [explain(site.models[name], QUERY, DEFINITION) for name in ("mores", "knrm")]
    assert answer == compare(*pair).to_json()
    page.goto("")
    page.evaluate(
        """async comparison => {
          const {Sides} = await import('./sides.js');
          const names = ['left', 'right'];
          const sides = new Sides(comparison, {heads: [[], []], names, go: () => {}});
          document.getElementById('main').replaceChildren(sides.root);
          sides.show({});
        }""",
        answer,
    )
    rows = page.locator("table.differences tr[data-group]")
    expect(rows).to_have_count(len(answer["differences"]))
    for side, one in zip(page.locator("article").all(), pair, strict=True):
        expect(side.locator(".score")).to_have_text(format_number(one.score))
