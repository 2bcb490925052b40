"""Clicks and ratings on the page reach the query log, and the Budget view compares by them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_service import DOCS, QUERY, Site, running, save_models
from playwright.sync_api import Page, expect

from glassrank.index import Index
from glassrank.serve import Options


@pytest.fixture(scope="module")
def comparing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("feedback")
    Index.build(DOCS, folder / "index")
    options = Options(
        folder / "index",
        save_models(folder),
        budget_ms=1000.0,
        log=folder / "log.jsonl",
        interleave="knrm",
        interleave_share=1.0,
    )
    with running(options) as address:
        yield address, folder / "log.jsonl"


def read_feedback(path: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [event for event in events if event["action"] != "search"]


def test_clicks_and_thumbs_are_sent(new_page: Page, comparing: tuple[str, Path]) -> None:
    address, log = comparing
    new_page.goto(f"{address}?q={QUERY}")
    hit = new_page.locator(".hit").nth(1)
    doc_id = hit.get_attribute("data-doc")
    expect(hit.locator(".thumbs svg")).to_have_count(2)  # letters would need a font that has them
    with new_page.expect_response("**/feedback"):
        hit.locator("a.title").click()
    with new_page.expect_response("**/feedback"):
        hit.get_by_role("button", name="Relevant", exact=True).click()
    expect(hit.get_by_role("button", name="Relevant", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    assert [(event["action"], event["doc_id"]) for event in read_feedback(log)] == [
        ("click", doc_id),
        ("up", doc_id),
    ]
    expect(hit.locator(".hit-score")).to_be_hidden()  # of two models: they do not compare
    new_page.goto(f"{address}?view=budget")
    expect(new_page.locator(".online")).to_contain_text("Compared online in 1 search")
    expect(new_page.locator(".online")).to_contain_text("Not decided yet")


def test_without_a_log_there_are_no_thumbs(page: Page, site: Site) -> None:
    page.goto(f"?q={QUERY}")
    expect(page.locator(".hit").first).to_be_visible()
    expect(page.locator(".thumbs").first).to_be_hidden()
