"""Examples in docstrings become blocks of code on the site, by mkdocstrings' own parser."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class FencedDoctests(griffe.Extension):
    """From the first `>>>` to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\n```pycon\n\g<0>\n```\n", obj.docstring.value)
