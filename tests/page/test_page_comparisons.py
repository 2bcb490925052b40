"""Two documents, two models and two given texts side by side; and what a change would do."""

import re

import pytest
from page_service import DEFINITION, QUERY, THERAPY, Site
from playwright.sync_api import Locator, Page, Route, expect
from test_page_explanation import open_explanation

from glassrank.embeddings import join_title
from glassrank.explanations import (
    Change,
    ExplanationPair,
    compare,
    explain,
    explain_docs,
    what_if,
)
from glassrank.explanations.changes import apply_change
from glassrank.explanations.structure import format_number, format_signed
from glassrank.rerank import Pipeline


def shown_differences(page: Page) -> list[list[str]]:
    found: list[list[str]] = page.locator("table.differences").evaluate(
        """table => [...table.querySelectorAll('tr[data-group]')].map(
             row => [...row.cells].slice(0, 4).map(cell => cell.textContent.trim()))"""
    )
    return found


def open_differences(page: Page) -> None:
    """By path and kernel: of two documents they are one click further than the bars."""
    page.get_by_text("Differences by path and kernel").click()
    expect(page.locator("table.differences")).to_be_visible()


def expected_differences(comparison: ExplanationPair) -> list[list[str]]:
    rows = []
    for row in comparison.differences:
        text = format_signed(row.difference)
        sign = {"+": " ▲", "-": " ▼"}.get(text[0], "")
        values = ["" if value is None else format_number(value) for value in (row.left, row.right)]
        rows.append([f"{row.name}, {row.path}" if row.path else row.name, *values, text + sign])
    return rows


def test_two_results_are_compared_with_signed_differences(page: Page, site: Site) -> None:
    page.goto(f"?q={QUERY}")
    for doc_id in ("therapy", "ar"):
        page.locator(f'[data-doc="{doc_id}"]').get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare side by side").click()
    open_differences(page)
    answer = page.request.post("search", data={"query": QUERY}).json()
    hits = {hit["doc_id"]: hit for hit in answer["hits"]}
    # The higher one is to the left, whichever was chosen first.
    ids = sorted(("ar", "therapy"), key=lambda doc_id: hits[doc_id]["rank"])
    expect(page).to_have_url(re.compile(f"left={ids[0]}&right={ids[1]}"))
    pipeline = Pipeline(site.index, site.models["tk"], calibrate=False)
    sides = explain_docs(pipeline, QUERY, ids)
    assert shown_differences(page) == expected_differences(compare(*sides))
    expect(page.locator(".shared .sentence")).to_have_text(compare(*sides).sentence)
    for side, doc_id in zip(page.locator(".side").all(), ids, strict=True):
        expect(side.locator(".rank")).to_have_text(str(hits[doc_id]["rank"]))
        expect(side.locator(".was")).to_contain_text(f"from {hits[doc_id]['first_rank']}")
    page.get_by_role("button", name="Swap sides").click()
    expect(page).to_have_url(re.compile(f"left={ids[1]}&right={ids[0]}"))
    open_differences(page)
    page.wait_for_function("want => document.querySelector('td.difference').textContent === want",
                           arg=expected_differences(compare(*sides[::-1]))[0][3])  # fmt: skip


@pytest.mark.parametrize("rankers", [("knrm", "knrm"), ("tk", "knrm")])
def test_documents_are_compared_by_the_scores_of_the_list(
    page: Page, rankers: tuple[str, str]
) -> None:
    """By the models of a cascade that ranked them there, whatever another search would do."""
    by = dict(zip(("ar", "therapy"), rankers, strict=True))
    searches: list[str] = []

    def cascaded(route: Route) -> None:
        answer = route.fetch().json()
        searches.append(answer["query"])
        hits = [{**hit, "ranked_by": by.get(hit["doc_id"], "tk")} for hit in answer["hits"]]
        route.fulfill(json={**answer, "model": "tk+knrm", "hits": hits})

    page.route("**/search", cascaded)
    page.goto(f"?q={QUERY}")
    expect(page.locator('[data-doc="ar"] .ranked-by')).to_have_text(f"ranked by {by['ar']}")
    for doc_id in by:
        page.locator(f'[data-doc="{doc_id}"]').get_by_role("checkbox").check()
    with page.expect_request("**/explain") as asked:
        page.get_by_role("button", name="Compare side by side").click()
    form = asked.value.post_data_json
    assert form["model"] == ([by[doc_id] for doc_id in form["doc_id"]] if len(set(rankers)) > 1
                             else [rankers[0]])  # fmt: skip
    expect(page.locator(".side")).to_have_count(2)
    assert searches == [QUERY]
    # What two models say is on no common scale.
    expect(page.locator(".shared .sentence")).to_have_count(1 if len(set(rankers)) == 1 else 0)


def test_two_models_show_both_rankings_and_one_document(page: Page, site: Site) -> None:
    page.goto(f"?q={QUERY}")
    page.get_by_role("link", name="Compare two models").click()
    rankings = page.locator(".ranking")
    for number_, name in enumerate(("tk", "knrm")):
        answer = page.request.post("search", data={"query": QUERY, "model": name}).json()
        shown = rankings.nth(number_).locator("li")
        expect(shown).to_have_count(len(answer["hits"]))
        assert [line.get_attribute("data-doc") for line in shown.all()] == [
            hit["doc_id"] for hit in answer["hits"]
        ]
    rankings.first.locator('[data-doc="therapy"] a').click()
    expect(page.locator("table.differences")).to_be_visible()
    pipelines = (
        Pipeline(site.index, site.models[name], calibrate=False) for name in ("tk", "knrm")
    )
    sides = [explain_docs(pipeline, QUERY, ["therapy"])[0] for pipeline in pipelines]
    assert shown_differences(page) == expected_differences(compare(*sides))


def test_given_texts_are_compared_as_in_the_papers_figure(page: Page, site: Site) -> None:
    page.goto("?view=texts")
    page.get_by_label("Query").fill(QUERY)
    page.get_by_label("Left text").fill(DEFINITION)
    page.get_by_label("Right text").fill(THERAPY)
    page.get_by_role("button", name="Explain").click()
    open_differences(page)
    sides = [explain(site.models["tk"], QUERY, text) for text in (DEFINITION, THERAPY)]
    assert shown_differences(page) == expected_differences(compare(*sides))
    expect(page.locator(".side").first.locator(".w.on").first).to_be_visible()
    page.reload()
    expect(page.get_by_label("Right text")).to_have_value(THERAPY)
    expect(page.locator(".sides .against").first).to_be_visible()


def moves(panel: Locator) -> list[str]:
    return [text.replace("\xa0", " ") for text in panel.locator(".move").all_inner_texts()]


def test_removing_and_replacing_a_word_moves_score_and_rank(page: Page, site: Site) -> None:
    panel = open_explanation(page)
    word = panel.locator(".document-text .w", has_text=re.compile("^androgen")).first
    place = int(word.get_attribute("data-place") or "")
    word.click()
    page.locator(".card").get_by_role("button", name="Remove").click()
    expect(panel.locator(".move")).to_have_count(2)
    found = [hit.doc_id for hit in site.index.search(QUERY, 100, "bm25")]
    scores = [hit.score for hit in site.index.search(QUERY, 100, "bm25")]
    texts = [site.index.doc(doc_id) for doc_id in found]

    def expected(change: Change) -> list[str]:
        doc = found.index("ar")
        answer = what_if(site.models["tk"], QUERY, texts, change, doc=doc, first_stage=scores)
        moved = answer.moved[doc]
        score = moved.score_after - moved.score_before
        rank = moved.rank_before - moved.rank_after
        signs = ["▲" if gain > 0 else "▼" if gain < 0 else "=" for gain in (score, rank)]
        before, after = format_number(moved.score_before), format_number(moved.score_after)
        return [
            f"score {before} → {after} {signs[0]}",
            f"rank {moved.rank_before} → {moved.rank_after} {signs[1]}",
        ]

    assert moves(panel) == expected(Change("document", place))
    expect(panel.locator(".w.removed")).to_have_text(re.compile("^androgen"))
    expect(page).to_have_url(re.compile(f"change=document.{place}"))
    word.click()
    page.get_by_label("Replace “androgen” by").fill("mice")
    page.keyboard.press("Enter")
    expect(panel.locator(".what-if-title")).to_have_text("With “mice” instead of “androgen”")
    expect(panel.locator(".move")).to_have_count(2)
    assert moves(panel) == expected(Change("document", place, "mice"))
    panel.get_by_role("button", name="Put it back").click()
    expect(panel.locator(".what-if")).to_be_hidden()
    expect(panel.locator(".removed, .instead")).to_have_count(0)
    page.go_back()
    expect(panel.locator(".what-if-title")).to_have_text("With “mice” instead of “androgen”")


def test_a_document_that_no_other_was_scored_beside_has_no_rank(page: Page) -> None:
    def alone(route: Route) -> None:
        answer = route.fetch().json()
        if "moved" in answer:
            moved = {**answer["moved"][answer["doc"]], "rank_before": 1, "rank_after": 1}
            ids = [answer["doc_ids"][answer["doc"]]]
            answer = {**answer, "doc": 0, "moved": [moved], "doc_ids": ids}
        route.fulfill(json=answer)

    page.route("**/explain", alone)
    panel = open_explanation(page, more="&change=document.0")
    expect(panel.locator(".moves")).to_contain_text("no time to rank the others anew")
    expect(panel.locator(".move")).to_have_count(1)


def test_a_word_of_the_query_can_go_too(page: Page) -> None:
    panel = open_explanation(page, more="&change=query.2")
    expect(panel.locator(".what-if-title")).to_have_text("Without “define” in the query")
    expect(panel.locator(".query-text .removed")).to_have_text(re.compile("^define"))
    assert moves(panel)[0].startswith("score ")


def test_before_and_after_stand_side_by_side(page: Page, site: Site) -> None:
    panel = open_explanation(page, more="&change=document.0.some")
    panel.get_by_role("button", name="Before and after, side by side").click()
    open_differences(page)
    before = join_title(site.index.doc("ar"))
    after = apply_change(before, Change("document", 0, "some"))
    first = {hit.doc_id: hit.score for hit in site.index.search(QUERY, 100, "bm25")}["ar"]
    sides = [explain(site.models["tk"], QUERY, text, first_stage=first) for text in (before, after)]
    assert shown_differences(page) == expected_differences(compare(*sides))
