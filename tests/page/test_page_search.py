"""Searching on the page: results, ranks, times, the budget's slider, model and method."""

import re
from contextlib import suppress
from typing import Any

import pytest
from page_service import QUERY
from playwright.sync_api import Error, Page, Response, Route, expect

from glassrank.errors import sanitize
from glassrank.explanations.structure import format_number


def search(page: Page, query: str = QUERY) -> dict[str, Any]:
    """Types a query, presses Enter, and gives the service's answer."""
    page.goto("")
    page.get_by_role("searchbox", name="Query").fill(query)
    with page.expect_response("**/search") as answered:
        page.keyboard.press("Enter")
    expect(page.locator(".hit").first).to_be_visible()
    return _json(answered.value)


def _json(response: Response) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    return body


def test_enter_shows_and_announces_results_with_both_ranks(page: Page) -> None:
    answer = search(page)
    rows = page.locator(".hit")
    expect(rows).to_have_count(len(answer["hits"]))
    said = f"{len(answer['hits'])} results, {answer['depth']} re-ranked"
    expect(page.locator("#status")).to_contain_text(said)
    for row, hit in zip(rows.all(), answer["hits"], strict=True):
        assert row.get_attribute("data-doc") == hit["doc_id"]
        assert row.locator(".rank").inner_text() == str(hit["rank"])
        assert row.locator(".was").inner_text().endswith(f"from {hit['first_rank']}")
        arrow = row.locator(".moved [aria-hidden]").inner_text()
        gain = hit["first_rank"] - hit["rank"]
        assert arrow.replace("\u2009", "") == (
            f"▲{gain}" if gain > 0 else f"▼{-gain}" if gain else "="
        )
        assert row.locator(".hit-score").inner_text().endswith(format_number(hit["score"]))


def test_hits_that_words_had_not_found_say_how_they_came_in(page: Page) -> None:
    def change(route: Route) -> None:
        answer = route.fetch().json()
        first, second, third, *_ = answer["hits"]
        second |= {"found_by": ["graph"], "neighbour_of": first["doc_id"], "first_rank": None}
        third |= {"found_by": ["dense"]}
        route.fulfill(json=answer)

    page.route("**/search", change)
    page.goto(f"?q={QUERY}")
    told = page.locator(".hit").nth(1).locator(".found-by")
    expect(told).to_have_text("near to hit 1")
    assert told.get_attribute("title") == "bm25 had not found it"
    expect(page.locator(".hit").nth(2).locator(".found-by")).to_have_text("by meaning")
    expect(page.locator(".found-by")).to_have_count(2)


def test_snippets_have_the_matched_words_marked(page: Page) -> None:
    answer = search(page)
    for row, hit in zip(page.locator(".hit").all(), answer["hits"], strict=True):
        snippet = hit["snippet"]
        marked = [sanitize(snippet["text"][start:stop]) for start, stop in snippet["matches"]]
        assert [mark.text_content() for mark in row.locator("mark").all()] == marked
        assert row.locator(".snippet").text_content() == sanitize(snippet["text"])


def test_the_time_bar_has_every_stage_and_the_depth(page: Page) -> None:
    answer = search(page)
    depth = page.locator(".time .depth")
    expect(depth).to_contain_text(f"Re-ranked {answer['depth']} of")
    expect(depth).to_contain_text("1,000 ms")
    stages = page.locator(".stages li")
    expect(stages).to_have_count(len(answer["stages"]))
    widths = page.eval_on_selector_all(".track .stage", "all => all.map(one => one.style.width)")
    whole = max(answer["timing_ms"]["total"], 1000)
    for width, stage in zip(widths, answer["stages"], strict=True):
        assert abs(float(width.rstrip("%")) - 100 * stage["ms"] / whole) < 0.01


def test_the_depth_is_told_of_what_was_found(page: Page) -> None:
    """Where few documents match, all of them were reached: no time has run out."""
    answer = search(page)
    assert answer["depth"] == answer["found"] < answer["candidates"]
    depth = page.locator(".time .depth")
    expect(depth).to_contain_text(f"Re-ranked {answer['found']} of {answer['found']} candidates")
    expect(depth).not_to_contain_text("used up")


@pytest.mark.parametrize(
    ("others", "why"), [(2, "others are searching"), (0, "this machine is busy with other work")]
)
def test_a_search_that_had_less_time_says_why(page: Page, others: int, why: str) -> None:
    def shared(route: Route) -> None:
        less = {"depth": 3, "cut_short": True, "granted_ms": 12.0, "shared": bool(others)}
        route.fulfill(json={**route.fetch().json(), **less})

    page.route("**/search", shared)
    search(page)
    depth = page.locator(".time .depth")
    expect(depth).to_contain_text("Re-ranked 3 of")
    expect(depth).to_contain_text("budget used up at depth 3")
    expect(depth).to_contain_text(f"{why}, so it got 12 ms")


def test_the_slider_ranks_anew_and_the_address_follows(page: Page) -> None:
    search(page)
    slider = page.get_by_role("slider", name="Budget")
    with page.expect_response("**/search") as answered:
        slider.press("End")
    assert answered.value.request.post_data_json["budget_ms"] == 2000
    answer = _json(answered.value)
    expect(page.locator(".chosen-value")).to_have_text("2,000 ms")
    expect(page.locator(".time .depth")).to_contain_text(f"Re-ranked {answer['depth']} of")
    expect(page).to_have_url(re.compile(r"[?&]budget=2000\b"))


def test_a_stale_answer_is_dropped(page: Page) -> None:
    """The first question is answered last, and must not be shown."""
    search(page)
    held = []

    def hold(route: Any) -> None:
        if route.request.post_data_json["budget_ms"] == 5:
            held.append(route)
        else:
            route.continue_()

    page.route("**/search", hold)
    slider = page.get_by_role("slider", name="Budget")
    with page.expect_request("**/search"):
        slider.press("Home")
    with page.expect_response("**/search") as answered:
        slider.press("End")
    expect(page.locator(".time .depth")).to_contain_text("within 2,000 ms")
    late = {**_json(answered.value), "hits": []}
    with suppress(Error):  # the page may have given this question up for good
        held[0].fulfill(json=late)
    page.wait_for_timeout(200)
    expect(page.locator(".time .depth")).to_contain_text("within 2,000 ms")
    expect(page.locator(".hit").first).to_be_visible()


def test_a_slider_that_moves_on_is_asked_about_once(page: Page) -> None:
    search(page)
    asked: list[float] = []
    page.on(
        "request",
        lambda sent: (
            asked.append(sent.post_data_json["budget_ms"]) if sent.url.endswith("/search") else None
        ),
    )
    slider = page.get_by_role("slider", name="Budget")
    with page.expect_response("**/search"):
        page.evaluate(
            """() => {
              const slider = document.querySelector('.slider input');
              for (const step of [20, 21, 22, 23]) {
                slider.value = step;
                slider.dispatchEvent(new Event('input'));
              }
            }"""
        )
    assert len(asked) == 1
    expect(slider).to_have_attribute("aria-valuetext", f"{asked[0]} milliseconds")


def test_model_and_method_can_be_chosen(page: Page) -> None:
    search(page)
    with page.expect_response("**/search") as answered:
        page.get_by_label("Model", exact=True).select_option("knrm")
    assert _json(answered.value)["model"] == "knrm"
    with page.expect_response("**/search") as answered:
        page.get_by_label("First stage").select_option("ql")
    assert _json(answered.value)["method"] == "ql"
    expect(page).to_have_url(re.compile("model=knrm&method=ql"))
    with page.expect_response("**/search") as answered:
        page.get_by_label("Model", exact=True).select_option("none")
    expect(page.locator(".time .depth")).to_contain_text("First stage alone")
    expect(page.locator(".moved")).to_have_count(0)


def test_nothing_found_is_said(page: Page) -> None:
    page.goto("?q=zebra")
    expect(page.locator(".message")).to_have_text(
        "Nothing found: no document has a word of this query."
    )
    expect(page.locator("#status")).to_have_text(re.compile("Nothing found"))


def test_a_refusal_is_shown_as_the_service_says_it(page: Page) -> None:
    page.goto(f"?q={QUERY}&model=nosuch")
    expect(page.get_by_role("alert")).to_contain_text("there is no model 'nosuch'")
    page.complaints.clear()  # type: ignore[attr-defined]  # the browser reports every status 400


def test_a_busy_service_is_asked_once_more(page: Page) -> None:
    """Refused twice, it is told to the reader, and what was found before stays."""
    search(page)
    asked: list[Any] = []

    def refuse(route: Any) -> None:
        asked.append(route.request)
        route.fulfill(status=503, headers={"Retry-After": "0"}, json={"message": "come later"})

    page.route("**/search", refuse)
    page.get_by_role("slider", name="Budget").press("End")
    expect(page.get_by_role("alert")).to_have_text("come later")
    assert len(asked) == 2
    expect(page.locator(".hit").first).to_be_visible()
    page.unroute("**/search")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.complaints.clear()  # type: ignore[attr-defined]


def test_a_first_model_that_had_nothing_to_do_has_re_ranked_nothing(page: Page) -> None:
    """Of a cascade: the second model's documents are not told as if they were ranked twice."""

    def answered(route: Route) -> None:
        answer = route.fetch().json()
        for stage in answer["stages"]:
            if stage["name"] == "scoring":
                stage["name"] = "scoring_2"
        route.fulfill(json=answer)

    page.route("**/search", answered)
    page.goto(f"?q={QUERY}")
    expect(page.locator(".time .depth")).to_contain_text("Re-ranked 11 of 11 candidates in")
