"""The page as the demo has it: what is searched, questions to click, reports that follow."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_service import QUERIES, Site, running
from playwright.sync_api import Page, expect

from glassrank.corpus import SAMPLE_QUERIES
from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.serve import Options

TK = "tk"


def demo_options(site: Site, folder: Path, **more: Any) -> Options:
    path = site.index.path
    return Options(
        path,
        ((TK, str(path.parent / TK)),),
        budget_ms=1000.0,
        clusters=folder / "clusters.json",
        curves=folder / "budget.json",
        reports_pending=True,
        **more,
    )


def test_it_says_what_is_searched_and_has_six_questions_to_click(
    page: Page, site: Site, tmp_path: Path
) -> None:
    samples = tuple(query for query, _ in list(QUERIES.values())[: len(SAMPLE_QUERIES)])
    options = demo_options(
        site, tmp_path, samples=samples, subject="the notes of <b>a biologist</b>"
    )
    with running(options) as address:
        page.goto(address)
        lead = page.locator(".welcome .lead")
        number = len(site.index)
        expect(lead).to_contain_text(f"Search the notes of <b>a biologist</b> ({number} documents)")
        links = page.get_by_role("list", name="Queries to try").get_by_role("link")
        expect(links).to_have_count(6)
        assert links.all_inner_texts() == list(samples)
        links.nth(2).click()
        expect(page.get_by_role("searchbox", name="Query")).to_have_value(samples[2])
        expect(page.locator(".hit").first).to_be_visible()


def test_it_says_that_documents_are_being_encoded_until_they_are(
    page: Page, site: Site, tmp_path: Path
) -> None:
    index = tmp_path / "index"  # the site's other tests have no store, either
    shutil.copytree(site.index.path, index)
    line = page.get_by_text("being encoded in the background")
    with running(replace(demo_options(site, tmp_path), index=index)) as address:
        page.goto(address)
        expect(line).to_be_visible()
        encode_index(Index(index), site.models[TK].saved)
        while page.request.get(f"{address}info").json()["encoding"]:
            page.wait_for_timeout(50)
        page.reload()
        expect(page.locator(".welcome .lead")).to_be_visible()
        expect(line).to_have_count(0)


@pytest.mark.long
def test_reports_appear_when_they_are_there(page: Page, site: Site, tmp_path: Path) -> None:
    with running(demo_options(site, tmp_path)) as address:
        for view, file, shown in (
            ("queries", "clusters.json", "details.cluster"),
            ("budget", "budget.json", ".chart"),
        ):
            page.goto(f"{address}?view={view}")
            expect(page.locator(".place .message")).to_contain_text("being measured")
            # As the demo does it: whole, by one rename.
            shutil.copy(site.index.path.parent / file, tmp_path / "new")
            (tmp_path / "new").rename(tmp_path / file)
            expect(page.locator(shown).first).to_be_visible()
            expect(page.locator(".place > .message")).to_have_count(0)
    page.complaints.clear()  # type: ignore[attr-defined]  # the browser reports every status 503
