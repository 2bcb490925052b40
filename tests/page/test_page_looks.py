"""Light and dark, without anything jumping; numbers printed as elsewhere."""

import json
import random
import struct
from pathlib import Path
from typing import Any

from page_service import QUERY
from playwright.sync_api import Page, expect

import glassrank.serve
from glassrank.errors import sanitize
from glassrank.explanations.structure import format_number, format_signed, to_letter

PAGE = Path(glassrank.serve.__file__).parent / "page"
BRIGHTNESS = """name => {
  const probe = document.body.appendChild(document.createElement('span'));
  probe.style.color = `var(${name})`;
  const [red, green, blue] = getComputedStyle(probe).color.match(/[\\d.]+/g).map(Number);
  probe.remove();
  const linear = [red, green, blue].map(one => {
    const share = one / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}"""


def contrast(page: Page, one: str, other: str) -> float:
    light, dark = sorted((page.evaluate(BRIGHTNESS, name) for name in (one, other)), reverse=True)
    ratio: float = (light + 0.05) / (dark + 0.05)
    return ratio


def test_dark_and_light_follow_the_system_and_the_switch(page: Page) -> None:
    page.goto(f"?q={QUERY}")
    expect(page.locator(".hit").first).to_be_visible()
    seen = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        seen[scheme] = page.evaluate(BRIGHTNESS, "--paper")
        for text in ("--ink", "--faint", "--link", "--up", "--down"):
            assert contrast(page, text, "--paper") >= 4.5, (scheme, text)
            assert contrast(page, text, "--raised") >= 4.5, (scheme, text)
    assert seen["dark"] < 0.1 < 0.8 < seen["light"]
    page.emulate_media(color_scheme="light")
    button = page.locator("#theme")
    button.click()
    button.click()
    expect(button).to_have_text("Theme: dark")
    assert page.evaluate(BRIGHTNESS, "--paper") == seen["dark"]
    page.reload()
    expect(button).to_have_text("Theme: dark")
    assert page.evaluate(BRIGHTNESS, "--paper") == seen["dark"]
    button.click()
    expect(button).to_have_text("Theme: auto")  # for whoever comes next


def test_nothing_jumps_while_results_come(new_page: Page) -> None:
    page = new_page
    page.add_init_script(
        """window.shifts = 0;
        new PerformanceObserver(list => {
          for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifts += one.value;
        }).observe({type: 'layout-shift', buffered: true});"""
    )
    page.goto(f"?q={QUERY}")
    expect(page.locator(".hit").first).to_be_visible()
    with page.expect_response("**/search"):
        page.get_by_role("slider", name="Budget").press("End")
    expect(page.locator(".time .depth")).to_contain_text("2,000 ms")
    assert page.evaluate("window.shifts") < 0.02


def numbers() -> list[float]:
    """Of every size, exact ties between two printed numbers, and float32's as models have them."""
    rng = random.Random(0)
    values = [rng.uniform(-1, 1) * 10.0 ** rng.randint(-9, 9) for _ in range(2000)]
    values += [rng.randint(-(10**6), 10**6) / 32 for _ in range(2000)]
    values += [struct.unpack("f", struct.pack("f", value))[0] for value in values[:1000]]
    return [*values, 0.0, -0.0, 0.00005, -0.00004999, 1e15 + 0.3]


def test_numbers_and_texts_are_printed_as_in_python(page: Page) -> None:
    page.goto("")
    texts = ["a\x00b\u202ec\u2066", "tab\tline\n", "\x9f é 😀"]
    printed: dict[str, Any] = page.evaluate(
        """async ([values, texts]) => {
          const {number, signed, safe} = await import('./printing.js');
          const {letter} = await import('./palette.js');
          return {
            number: values.map(number), signed: values.map(signed), safe: texts.map(safe),
            letter: Array.from({length: 60}, (_, place) => letter(place)),
          };
        }""",
        json.loads(json.dumps([numbers(), texts])),
    )
    assert printed["number"] == list(map(format_number, numbers()))
    assert printed["signed"] == list(map(format_signed, numbers()))
    assert printed["safe"] == list(map(sanitize, texts))
    assert printed["letter"] == list(map(to_letter, range(60)))


def test_every_module_is_fetched_at_once() -> None:
    """One that the list forgets would be found late; one that is gone asked for in vain."""
    html = (PAGE / "index.html").read_text()
    modules = {path.name for path in PAGE.glob("*.js")} - {"theme.js", "app.js"}
    listed = {line.split('"')[3] for line in html.splitlines() if "modulepreload" in line}
    assert listed == modules
