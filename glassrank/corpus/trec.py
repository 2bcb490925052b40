"""Reads TREC's markup: documents (`<DOC>`) and topics (`<top>`, or the XML of later tracks).

It looks like SGML, but most collections are not well-formed. So the readers search for the tags
they need and strip all others.
"""

import html
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from glassrank.corpus.records import (
    DocRecords,
    check_not_empty,
    check_size,
    read_text_lines,
    try_doc,
)
from glassrank.errors import InputError
from glassrank.storage.files import read_lines
from glassrank.types import Doc

# All patterns take linear time: searches that could restart at each character use `find`, or end
# at the last `>`, since no tag can end after it.
_DOC_TAG = re.compile(r"(</?DOC(?:\s[^>]*)?>)", re.IGNORECASE)
_DOCNO = re.compile(r"<(?ai:(DOCNO))(?=>)")
# Titles in AP, FT, LA and web pages; the Federal Register; the Wall Street Journal; FBIS.
_TITLE = re.compile(r"<(?ai:(TITLE|HEADLINE|DOCTITLE|HL|TI))\b")
# Ids, HTTP headers and scripts are not text.
_NOT_TEXT = re.compile(r"<(?:!--|(?ai:(DOCNO|DOCID|DOCOLDNO|DOCHDR|SCRIPT|STYLE))\b)")
_TAG = re.compile(r"<[/!?]?[a-zA-Z][^>]*>")
_LONG_NUMBER = re.compile(r"&#[0-9]{20,}+;?")

_TOPIC = re.compile(r"<top(?:ic)?(?:\s[^>]*)?>", re.IGNORECASE)
_TOPIC_END = re.compile(r"</top(?:ic)?>", re.IGNORECASE)
_TOPIC_NUMBER = re.compile(
    r"\bnumber\s*+=\s*+[\"']([^\"']+)|<num>\s*+(?:Number:\s*+)?+([^\s<]+)", re.IGNORECASE
)
_FIELD_END = re.compile(r"</?\w")
_LABEL = re.compile(r"^\s*(Topic|Description|Narrative):")  # early topics: `<desc> Description:`
TOPIC_FIELDS = {
    "title": "title|query",
    "desc": "desc|description",
    "narr": "narr|narrative",
}


def read_trec_docs(path: Path, encoding: str = "utf-8") -> DocRecords:
    """Reads each `<DOC>…</DOC>` of a file, with the line of its `<DOC>`."""
    start, parts = 0, list[str]()  # the line of the open <DOC> (0: none) and its content
    size = 0
    for number, line in read_lines(path, encoding):
        head, tail = _split_at_last_bracket(line)
        segments = _DOC_TAG.split(head)  # text, tag, text, tag, …, text
        segments[-1] += tail
        for place, segment in enumerate(segments):
            if place % 2 == 0:
                if start:
                    parts.append(segment)
                    size += len(segment) + 1
                    check_size(size, path, start)
            elif segment.startswith("</"):
                if start:
                    yield start, try_doc(_parse_doc, "\n".join(parts), path, start)
                start, parts = 0, []
            elif start:
                raise _unclosed("DOC", path, start)
            else:
                start, size = number, 0
    if start:
        raise _unclosed("DOC", path, start)


def _parse_doc(markup: str, path: Path, line: int) -> Doc:
    docno = next(_elements(markup, _DOCNO), None)
    doc_id = docno.content(markup).strip() if docno else ""
    if not doc_id:
        raise InputError.at(
            path, line, "expected <DOCNO>id</DOCNO> in the <DOC>, found none; add it"
        )
    title, text = extract_title_and_text(markup)
    check_not_empty(doc_id, title + text, path, line)
    return Doc(doc_id, text, title)


def extract_title_and_text(markup: str) -> tuple[str, str]:
    """The title and text of a TREC document or an HTML page.

    >>> extract_title_and_text("<title>Owls</title><script>x()</script><p>They <b>hoot</b>")
    ('Owls', 'They hoot')
    """
    titled = next(_elements(markup, _TITLE), None)
    title = ""
    if titled:
        title = " ".join(_strip_markup(titled.content(markup)).split())
        markup = markup[: titled.start] + markup[titled.stop :]
    return title, _strip_markup(markup)


class _Element(NamedTuple):
    """The positions of `<NAME …>content</NAME>` in the markup."""

    start: int
    inside: int
    end: int
    stop: int

    def content(self, markup: str) -> str:
        return markup[self.inside : self.end]


def _elements(markup: str, begins: re.Pattern[str]) -> Iterator[_Element]:
    """Elements whose start matches the pattern (its group is the name, none for a comment), in
    order. Tags may be unclosed: the end of such a tag is searched for only once."""
    bracket, stop = -1, 0
    unclosed: set[str] = set()
    for begin in begins.finditer(markup):
        start, inside = begin.span()
        kind = (begin[1] or "-->").upper()
        if start < stop or kind in unclosed:
            continue
        if begin[1]:
            if bracket < inside:
                bracket = markup.find(">", inside)
            if bracket < 0:
                return
            inside = bracket + 1
        close = _closing(kind).search(markup, inside)
        if close:
            stop = close.end()
            yield _Element(start, inside, *close.span())
        else:
            unclosed.add(kind)


@cache
def _closing(kind: str) -> re.Pattern[str]:
    return re.compile(kind if kind == "-->" else f"(?ai:</{kind}>)")


def _split_at_last_bracket(text: str) -> tuple[str, str]:
    """Splits after the last `>`: the second part cannot contain tags."""
    last = text.rfind(">") + 1
    return text[:last], text[last:]


def _strip_markup(markup: str) -> str:
    """
    >>> _strip_markup("<P>\\nFish &amp; <B>chips</B>\\n</P>\\n<P>\\nif x < 3\\n</P>")
    'Fish & chips\\nif x < 3'
    """
    kept, stop = [], 0
    for element in _elements(markup, _NOT_TEXT):
        kept.append(markup[stop : element.start])
        stop = element.stop
    head, tail = _split_at_last_bracket(" ".join([*kept, markup[stop:]]))
    text = _unescape(_TAG.sub(" ", head) + tail)
    return "\n".join(" ".join(line.split()) for line in text.split("\n") if line.strip())


def _unescape(text: str) -> str:
    """Unescapes HTML. Python refuses numbers of thousands of digits; no character has twenty."""
    return html.unescape(_LONG_NUMBER.sub("\N{REPLACEMENT CHARACTER}", text))


def read_topics(path: Path, field: str, encoding: str = "utf-8") -> Iterator[tuple[int, str, str]]:
    """(line, query id, text) of each topic; `field` is a key of `TOPIC_FIELDS`."""
    wanted = re.compile(rf"<(?:{TOPIC_FIELDS[field]})>", re.IGNORECASE)
    text = read_text_lines(path, encoding)
    openings = [match.start() for match in _TOPIC.finditer(_split_at_last_bracket(text)[0])]
    if not openings:
        raise InputError(
            f"{path} starts like TREC topics but has no <top>; "
            "expected topics, or name the file's format"
        )
    line, counted = 1, 0
    for start, end in zip(openings, [*openings[1:], len(text)], strict=True):
        line, counted = line + text.count("\n", counted, start), start
        close = _TOPIC_END.search(text, start, end)
        if not close:
            raise _unclosed("top", path, line)
        topic = text[start : close.start()]
        number = _TOPIC_NUMBER.search(topic)
        if not number:
            raise InputError.at(path, line, "expected <num> in the topic, found none; add it")
        query_id = number[1] or number[2]
        value = wanted.search(topic)
        if not value:
            problem = f"expected <{field}> in topic {query_id}, found none; choose another field"
            raise InputError.at(path, line, problem)
        # Up to the next tag or the end: early topics do not close fields.
        behind = _FIELD_END.search(topic, value.end(), topic.rfind(">") + 1)
        stop = behind.start() if behind else len(topic)
        field_text = " ".join(_unescape(topic[value.end() : stop]).split())
        yield line, query_id, _LABEL.sub("", field_text).strip()


def _unclosed(tag: str, path: Path, line: int) -> InputError:
    return InputError.at(
        path, line, f"expected </{tag}> to close this <{tag}>, found none; add it, or the rest"
    )
