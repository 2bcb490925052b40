"""Draws docs/demo.svg: what `glassrank demo` prints.  python docs/make_demo_picture.py"""

import re
import sys
from pathlib import Path

from rich.console import Console

from glassrank.cli import console
from glassrank.cli.demo import demo

QUERIES = ["how do I read a csv file?", "run a command and capture its output"]


def main() -> None:
    sys.argv = ["glassrank"]
    console.out = Console(record=True, width=118, highlight=False)
    demo(QUERIES, method="bm25", k=3, rebuild=False, quiet=True)
    picture = console.out.export_svg(title="glassrank demo")
    # Fonts are the reader's own: the picture asks nobody for one.
    picture = re.sub(r"@font-face\s*{[^}]*}", "", picture)
    Path(__file__).with_name("demo.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
