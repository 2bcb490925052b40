"""Documents are shown, never executed; a key is asked for; nothing comes from elsewhere."""

import re
from dataclasses import replace
from typing import Any

import pytest
from page_service import HTML, QUERY, Site, running
from playwright.sync_api import Page, expect

from glassrank.errors import sanitize
from glassrank.serve import Options

ODD = "../<b>?&"


def test_a_document_full_of_html_and_script_is_shown_as_text(page: Page) -> None:
    page.goto(f"?q={QUERY}")
    row = page.locator(".hit").filter(has_text="Not italic")
    expect(row.locator(".title")).to_have_text("<i>Not italic</i>")
    assert row.get_attribute("data-doc") == ODD
    expect(row.locator(".snippet")).to_contain_text("<b>bold</b>")
    row.get_by_role("button", name="Explain").click()
    text = row.locator(".document-text")
    expect(text).to_be_visible()
    page.evaluate("document.querySelectorAll('.w sup').forEach(cue => cue.remove())")
    assert (text.text_content() or "").endswith(sanitize(HTML))
    row.get_by_role("checkbox", name="Compare").check()
    expect(page.locator(".chosen")).to_contain_text("<i>Not italic</i>")
    page.goto(f"?q={QUERY}&view=compare&left=..%2F%3Cb%3E%3F%26&right=ar")
    expect(page.locator(".side").first.locator(".document-text")).to_contain_text("<script>")
    assert page.locator("main i, main b:not(.tree b, .after), main img, main script").count() == 0
    assert page.evaluate("window.ran") is None


def test_a_query_full_of_html_is_shown_as_text(page: Page) -> None:
    query = "<img src=x onerror=window.ran=1> receptor"
    page.goto("?q=" + query)
    expect(page.locator(".hit").first).to_be_visible()
    page.locator(".hit").first.get_by_role("button", name="Explain").click()
    expect(page.locator(".query-text")).to_contain_text("<")
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.ran") is None


def test_a_source_is_a_link_only_if_it_is_one(page: Page) -> None:
    page.goto(f"?q={QUERY}")
    link = page.locator('[data-doc="ar"] .source a')
    expect(link).to_have_attribute("href", "https://example.org/ar")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(page.locator('[data-doc="therapy"] .source a')).to_have_count(0)


def test_everything_comes_from_the_service_itself(page: Page, site: Site) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    response = page.goto(f"?q={QUERY}&doc=ar")
    expect(page.locator(".explanation")).to_be_visible()
    assert response is not None
    policy = response.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy
    assert asked and all(url.startswith((site.address, "data:")) for url in asked)


@pytest.fixture
def locked(site: Site) -> Any:
    options = Options(site.index.path, (), api_key="0123456789abcdef")
    with running(replace(options)) as address:
        yield address


def test_a_service_with_a_key_asks_for_it(browser: Any, locked: str) -> None:
    tab = browser.new_page()
    tab.goto(f"{locked}?q=cats")
    tab.get_by_label("API key").fill("wrong")
    tab.keyboard.press("Enter")
    expect(tab.get_by_label("API key")).to_have_value("")
    tab.get_by_label("API key").fill("0123456789abcdef")
    tab.keyboard.press("Enter")
    expect(tab.locator(".hit").first).to_be_visible()
    expect(tab.locator(".time .depth")).to_have_text(re.compile("First stage alone"))
    tab.close()
