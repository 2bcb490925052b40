"""Takes the pictures of the search page, from a running service:

    glassrank serve INDEX --clusters clusters.json --curves curves.json
    python docs/screenshots/take.py http://127.0.0.1:8000/ results explanation

It needs playwright and Debian's chromium.
"""

import sys
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

QUERY = "how do I read a csv file?"
VIEWS = {  # the address, and what to wait for
    "results": ({"q": QUERY, "budget": "100"}, ".hit"),
    "explanation": (
        {"q": QUERY, "budget": "2000", "doc": "csv.reader"},
        ".explanation .against, .explanation table",
    ),
    "side-by-side": (
        {
            "view": "compare",
            "q": QUERY,
            "budget": "2000",
            "left": "csv.reader",
            "right": "csv.Sniffer",
        },
        ".sides .against",
    ),
    "what-if": (
        {"q": QUERY, "budget": "2000", "doc": "csv.Sniffer", "change": "document.13"},
        ".what-if .move",
    ),
    "two-models": (
        {"view": "models", "q": QUERY, "budget": "2000", "doc": "csv.Sniffer"},
        ".differences",
    ),
    "queries": ({"view": "queries", "cluster": "1"}, ".cluster-queries"),
    "budget": ({"view": "budget", "ms": "50"}, ".chart"),
}
SIZE = {"width": 1200, "height": 860}
PHONE = {"width": 390, "height": 844}
LOOKS = (("", "light", SIZE), ("-dark", "dark", SIZE), ("-phone", "light", PHONE))
LEFT_OUT = {
    *(f"{name}-phone" for name in VIEWS if name != "explanation"),
    *("what-if-dark", "two-models-dark"),
}


def take(page: Page, address: str, name: str, ending: str) -> None:
    state, wanted = VIEWS[name]
    for _ in range(2):  # the first one warms the service up
        page.goto(f"{address}?{urlencode(state)}")
        page.locator(wanted).first.wait_for()
        page.wait_for_timeout(500)
    page.screenshot(path=Path(__file__).with_name(f"{name}{ending}.png"))


def main(address: str, names: list[str]) -> None:
    with sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for name in names or VIEWS:
            for ending, scheme, size in LOOKS:
                if f"{name}{ending}" in LEFT_OUT:
                    continue
                page = chromium.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
                take(page, address, name, ending)
                page.close()
        chromium.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
