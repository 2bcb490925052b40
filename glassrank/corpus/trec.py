"""TREC's markup: documents (`<DOC>`) and topics (`<top>`, or the XML of later tracks).

It looks like SGML but most collections are not well-formed, so we look for the tags we need and
strip the others, as every TREC reader does.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path

from glassrank.corpus.records import check_not_empty
from glassrank.errors import InputError
from glassrank.files import read_lines
from glassrank.types import Doc

_DOC_TAG = re.compile(r"(</?DOC(?:\s[^>]*)?>)", re.IGNORECASE)
_DOCNO = re.compile(r"<DOCNO>\s*(.*?)\s*</DOCNO>", re.IGNORECASE | re.DOTALL)
# Titles in AP, FT, LA and web pages; the Federal Register; the Wall Street Journal; FBIS.
_TITLE = re.compile(
    r"<(TITLE|HEADLINE|DOCTITLE|HL|TI)\b[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL
)
# Bookkeeping, HTTP headers and programs are no text.
_NOT_TEXT = re.compile(
    r"<!--.*?-->|<(DOCNO|DOCID|DOCOLDNO|DOCHDR|SCRIPT|STYLE)\b[^>]*>.*?</\1>",
    re.IGNORECASE | re.DOTALL,
)
_TAG = re.compile(r"<[/!?]?[a-zA-Z][^>]*>")

_TOPIC = re.compile(r"<top(?:ic)?(?:\s[^>]*)?>", re.IGNORECASE)
_TOPIC_END = re.compile(r"</top(?:ic)?>", re.IGNORECASE)
_TOPIC_NUMBER = re.compile(r"\bnumber\s*=\s*[\"']([^\"']+)|<num>\s*(?:Number:)?\s*([^\s<]+)", re.I)
TOPIC_FIELDS = {
    "title": "title|query",
    "desc": "desc|description",
    "narr": "narr|narrative",
}


def read_trec_docs(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, Doc]]:
    """Each `<DOC>…</DOC>` of a file, numbered by the line of its `<DOC>`."""
    start, parts = 0, list[str]()  # the open <DOC>'s line (0: none is open) and what it holds
    for number, line in read_lines(path, encoding):
        for piece in _DOC_TAG.split(line):
            if not _DOC_TAG.match(piece):
                if start:
                    parts.append(piece)
            elif piece.startswith("</"):
                if start:
                    yield start, _parse_doc("\n".join(parts), path, start)
                start, parts = 0, []
            elif start:
                raise _unclosed("DOC", path, start)
            else:
                start = number
    if start:
        raise _unclosed("DOC", path, start)


def _parse_doc(markup: str, path: Path, line: int) -> Doc:
    docno = _DOCNO.search(markup)
    if not docno or not docno[1]:
        raise InputError.at(
            path, line, "expected <DOCNO>id</DOCNO> in the <DOC>, found none; add it"
        )
    titled = _TITLE.search(markup)
    title = ""
    if titled:
        title = " ".join(_plain(titled[2]).split())
        markup = markup[: titled.start()] + markup[titled.end() :]
    text = _plain(markup)
    check_not_empty(docno[1], title + text, path, line)
    return Doc(docno[1], text, title)


def _plain(markup: str) -> str:
    """
    >>> _plain("<P>\\nFish &amp; <B>chips</B>\\n</P>\\n<P>\\nif x < 3\\n</P>")
    'Fish & chips\\nif x < 3'
    """
    text = html.unescape(_TAG.sub(" ", _NOT_TEXT.sub(" ", markup)))
    return "\n".join(" ".join(line.split()) for line in text.split("\n") if line.strip())


def read_topics(path: Path, field: str, encoding: str = "utf-8") -> Iterator[tuple[int, str, str]]:
    """(line, query id, text) of each topic; `field` is a key of `TOPIC_FIELDS`."""
    wanted = re.compile(rf"<(?:{TOPIC_FIELDS[field]})>(.*?)(?=</?\w+[^>]*>|\Z)", re.I | re.S)
    text = "\n".join(line for _, line in read_lines(path, encoding))
    openings = [match.span() for match in _TOPIC.finditer(text)]
    ends = [start for start, _ in openings[1:]] + [len(text)]
    line, counted = 1, 0
    for (start, _), end in zip(openings, ends, strict=True):
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
            raise InputError.at(
                path,
                line,
                f"expected <{field}> in topic {query_id}, found none; choose another field",
            )
        yield line, query_id, _without_label(html.unescape(value[1]))


def _without_label(text: str) -> str:
    """The early topics repeat the field's name: `<desc> Description:`."""
    return re.sub(r"^\s*(Topic|Description|Narrative):", "", " ".join(text.split())).strip()


def _unclosed(tag: str, path: Path, line: int) -> InputError:
    return InputError.at(
        path, line, f"expected </{tag}> to close this <{tag}>, found none; add it, or the rest"
    )
