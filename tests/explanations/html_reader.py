"""What an HTML explanation shows, read back from the file."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Tables, the tree of sums, hovers and plain text of an HTML file."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.tree: list[tuple[int, str, str]] = []
        self.hovers: list[str] = []
        self.text = ""
        self._rows: list[list[str]] = []
        self._open: list[str] = []
        self._caption = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in ("meta", "input"):
            self._open.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "li":
            self.tree.append((self._open.count("li"), "", ""))
        self.hovers += [value or "" for name, value in attrs if name == "title"]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"{tag} closes out of order"
        if tag == "table":
            self.tables[self._caption] = self._rows

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if {"td", "th"} & set(self._open):
            self._rows[-1][-1] += data
        elif inside == "caption":
            self._caption = data
        elif "li" in self._open and "article" in self._open:
            depth, name, value = self.tree[-1]
            self.tree[-1] = (depth, name, data) if inside == "b" else (depth, name + data, value)
        if "p" in self._open and inside != "sup":
            self.text += data
