"""Every state has an address: links work when they are opened, and so do the browser's buttons."""

import re

from page_service import QUERY
from playwright.sync_api import Page, Route, expect


def test_a_link_shows_what_its_sender_saw(page: Page) -> None:
    asked = {"query": QUERY, "model": "knrm", "method": "ql"}
    best = page.request.post("search", data=asked).json()["hits"][0]["doc_id"]
    page.goto(f"?q={QUERY}&budget=500&model=knrm&method=ql&doc={best}&by=term&flip=s3.t1")
    expect(page.get_by_role("searchbox", name="Query")).to_have_value(QUERY)
    expect(page.get_by_label("Model", exact=True)).to_have_value("knrm")
    expect(page.get_by_label("First stage")).to_have_value("ql")
    expect(page.locator(".chosen-value")).to_have_text("500 ms")
    panel = page.locator(f'[data-doc="{best}"] .explanation')
    expect(panel.get_by_role("radio", name="query word")).to_be_checked()
    expect(panel.get_by_role("checkbox", name="receptor 2")).not_to_be_checked()
    expect(panel.get_by_role("checkbox", name="androgen 1")).to_be_checked()
    expect(page).to_have_title(f"{QUERY} · glassrank")


def test_back_and_forward_go_through_what_was_seen(page: Page) -> None:
    page.goto("")
    box = page.get_by_role("searchbox", name="Query")
    for query in ("cats chase mice", QUERY):
        box.fill(query)
        page.keyboard.press("Enter")
        expect(page.locator("#status")).to_contain_text("results")
    page.locator('[data-doc="ar"]').get_by_role("button", name="Explain").click()
    expect(page.locator('[data-doc="ar"] .explanation')).to_be_visible()
    page.go_back()
    expect(page.locator(".explanation")).to_have_count(0)
    page.go_back()
    expect(box).to_have_value("cats chase mice")
    held: list[Route] = []
    page.route("**/search", lambda route: held.append(route))
    with page.expect_request("**/search"):
        page.go_forward()
    page.go_forward()  # before the results of the first step are there
    held[0].continue_()
    expect(page.locator('[data-doc="ar"] .explanation')).to_be_visible()
    expect(page.locator(".explanation")).to_have_count(1)


def test_titles_are_real_links_to_the_explanation(page: Page) -> None:
    page.goto(f"?q={QUERY}")
    link = page.locator('[data-doc="ar"] .title')
    href = link.get_attribute("href") or ""
    page.goto(href)
    expect(page.locator('[data-doc="ar"] .explanation')).to_be_visible()


def test_a_document_that_is_not_among_the_results_is_explained_above(page: Page) -> None:
    page.goto("?q=cats chase mice&doc=therapy")
    expect(page.locator(".elsewhere .explanation")).to_be_visible()
    expect(page.locator(".elsewhere h2")).to_have_text("therapy")


def test_another_view_keeps_the_search(page: Page) -> None:
    page.goto(f"?q={QUERY}&budget=500")
    expect(page.locator(".hit").first).to_be_visible()
    page.get_by_role("link", name="Budget").click()
    expect(page.get_by_role("heading", name="Quality against time")).to_be_focused()
    page.get_by_role("link", name="Search", exact=True).click()
    expect(page.locator(".hit").first).to_be_visible()
    expect(page).to_have_url(re.compile("budget=500"))


def test_what_is_wrong_in_an_address_is_left_out(page: Page) -> None:
    page.goto("?view=toString&k=many&budget=-5&change=nonsense&flip=zz")
    expect(page.get_by_role("searchbox", name="Query")).to_be_focused()
    expect(page.locator(".welcome")).to_be_visible()
