"""Types of queries and quality against time: what the commands found, on the page."""

import re

from page_service import QUERIES, Site
from playwright.sync_api import Page, expect

from glassrank.explanations.structure import format_number, format_signed


def names(page: Page) -> list[str]:
    texts = page.locator("details.cluster .cluster-name").all_inner_texts()
    return [text.splitlines()[0] for text in texts]


def test_clusters_have_median_ranks_and_can_be_sorted(page: Page, site: Site) -> None:
    report = site.reports["clusters"]
    page.goto("?view=queries")
    rows = page.locator("details.cluster")
    expect(rows).to_have_count(len(report["clusters"]))
    assert names(page) == [cluster["name"] for cluster in report["clusters"]]
    for row, cluster in zip(rows.all(), report["clusters"], strict=True):
        ranks = row.locator("summary .from-to").inner_text()
        expected = [
            "none" if (r := cluster[side]) is None else f"{r:g}" for side in ("baseline", "model")
        ]
        assert ranks == " → ".join(expected)
    page.get_by_label("Order").select_option("size")
    expect(page).to_have_url(re.compile("sort=size"))
    sizes = [int(text) for text in page.locator("details.cluster .size").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True) and sum(sizes) == len(report["queries"])
    expect(page.locator(".all-queries .size")).to_have_text(str(len(report["queries"])))


def test_queries_are_filtered_and_lead_to_their_results(page: Page) -> None:
    page.goto("?view=queries")
    page.get_by_label("Filter").fill("chas ca")
    links = page.locator(".cluster-queries a")
    wanted = {query for query, _ in QUERIES.values() if "chase" in query and "cats" in query}
    expect(links).to_have_count(len(wanted))
    assert set(links.all_inner_texts()) == wanted
    expect(page).to_have_url(re.compile("filter=chas\\+ca"))
    query = links.first.inner_text()
    links.first.click()
    expect(page.get_by_role("searchbox", name="Query")).to_have_value(query)
    expect(page.locator(".hit").first).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Filter")).to_have_value("chas ca")
    expect(links).to_have_count(len(wanted))


def test_curves_are_drawn_and_read_at_a_time(page: Page, site: Site) -> None:
    report = site.reports["budget"]
    page.goto("?view=budget&ms=1")
    expect(page.locator(".chart")).to_be_visible()
    expect(page.locator(".chart .curve:not(.beyond)")).to_have_count(len(report["models"]))
    measure = next(iter(report["first_stage"]))

    def expected(ms: int) -> list[str]:
        model = report["models"][0]
        values = model["measures"][measure]
        depth = min(model["depth"][ms], len(values["at_depth"]) - 1)
        gain = values["at_ms"][ms] - report["first_stage"][measure]
        return [model["label"], str(depth), format_number(values["at_ms"][ms]), format_signed(gain)]

    row = page.locator(".readouts tbody tr").nth(1)
    assert row.locator("th, td").all_inner_texts() == expected(1)
    slider = page.get_by_role("slider", name="Time")
    slider.press("End")
    ms = int((slider.get_attribute("aria-valuetext") or "").split()[0])
    expect(page).to_have_url(re.compile(rf"ms={ms}\b"))
    assert row.locator("th, td").all_inner_texts() == expected(ms)
    other = list(report["first_stage"])[1]
    page.get_by_role("radio", name=other, exact=True).check()
    expect(page.locator(".readouts caption")).to_contain_text(other)
    expect(page.locator(".chart")).to_have_attribute("aria-label", other)


def test_a_cluster_stays_open_in_its_address(page: Page, site: Site) -> None:
    page.goto("?view=queries")
    row = page.locator("details.cluster").nth(1)
    row.locator("summary").click()
    expect(row.locator(".cluster-queries li")).to_have_count(
        site.reports["clusters"]["clusters"][1]["queries"]
    )
    expect(page).to_have_url(re.compile("cluster=1"))
    page.reload()
    expect(row.locator(".cluster-queries a").first).to_be_visible()


def test_the_letters_of_the_chart_can_be_read_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("?view=budget")
    box = page.locator(".chart .tick").first.bounding_box()
    assert box is not None and box["height"] > 10
