"""The page without a mouse, and as a screen reader finds it."""

from page_service import QUERY
from playwright.sync_api import Page, expect


def test_search_explain_compare_and_change_with_keys_alone(page: Page) -> None:
    page.goto("")
    expect(page.get_by_role("searchbox", name="Query")).to_be_focused()
    page.keyboard.type(QUERY)
    page.keyboard.press("Enter")
    expect(page.locator(".hit").first).to_be_visible()
    page.keyboard.press("Escape")  # leaves the box
    page.keyboard.press("j")
    first, second = page.locator(".hit .title").first, page.locator(".hit .title").nth(1)
    expect(first).to_be_focused()
    page.keyboard.press("x")
    page.keyboard.press("j")
    expect(second).to_be_focused()
    page.keyboard.press("x")
    page.keyboard.press("k")
    expect(first).to_be_focused()
    page.keyboard.press("e")
    panel = page.locator(".explanation")
    expect(panel).to_be_visible()
    expect(first).to_be_focused()
    panel.locator(".document-text .w").first.focus()
    page.keyboard.press("ArrowRight")
    word = panel.locator(".document-text .w").nth(1)
    expect(word).to_be_focused()
    expect(word).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Enter")  # Remove has the focus
    expect(panel.locator(".what-if .move")).to_have_count(2)
    expect(word).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel.locator(".what-if")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(first).to_be_focused()
    page.keyboard.press("c")
    expect(page.locator(".sides .against").first).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Query")).to_be_focused()
    expect(page.get_by_role("searchbox", name="Query")).to_have_value(QUERY)


def test_keys_are_listed_and_escape_closes_the_list(page: Page) -> None:
    page.goto(f"?q={QUERY}")
    expect(page.locator(".hit").first).to_be_visible()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_tab_reaches_everything_in_order_and_the_focus_is_seen(page: Page) -> None:
    page.goto(f"?q={QUERY}")
    expect(page.locator(".hit").first).to_be_visible()
    seen = []
    for _ in range(16):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                """() => {
                  const one = document.activeElement;
                  const style = getComputedStyle(one);
                  const name = one.labels?.[0]?.textContent.trim() || one.textContent.trim();
                  return [one.getAttribute('aria-label') ?? name, parseFloat(style.outlineWidth)];
                }"""
            )
        )
    order = [name for name, _ in seen]
    assert order[:2] == ["Skip to content", "glassrank"]
    assert order[2:6] == ["Search", "Queries", "Budget", "Your texts"]
    assert order[8:13] == ["Query", "Search", "Model", "First stage", "Budget"]
    assert all(width >= 2 for _, width in seen)


def test_every_view_has_landmarks_names_and_room_on_a_phone(page: Page) -> None:
    """Whatever can be used has a name, there is one main heading, and nobody scrolls sideways."""
    page.set_viewport_size({"width": 360, "height": 740})
    for address in (
        f"?q={QUERY}&doc=ar",
        f"?q={QUERY}&view=compare&left=ar&right=therapy",
        f"?q={QUERY}&view=models&doc=ar",
        "?view=queries",
        "?view=budget",
        "?view=texts",
    ):
        page.goto(address)
        expect(page.locator("h1")).to_have_count(1)
        expect(page.locator(".loading")).to_have_count(0)
        if "q=" in address:
            expect(page.locator(".document-text").first).to_be_visible()
        for role in ("banner", "navigation", "main"):
            expect(page.get_by_role(role)).to_have_count(1)  # type: ignore[arg-type]
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('button, a, input, select, textarea, [role]')]
              .filter(one => one.checkVisibility() && !['status', 'alert'].includes(one.role))
              .filter(one => !(one.ariaLabel || one.labels?.length || one.textContent.trim()))
              .map(one => one.outerHTML.slice(0, 200))"""
        )
        assert nameless == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, address
