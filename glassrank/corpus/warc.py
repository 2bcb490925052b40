"""WARC files: pages as crawlers keep them, in ClueWeb09, ClueWeb12 and Common Crawl.

A record is a header, with the length of what follows. Documents are `response` records, a page
behind its HTTP header, and `resource` and `conversion` records, a page or its text. All others, and
what is no text, are passed over.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from glassrank.corpus.records import Read, attempted, check_not_empty
from glassrank.corpus.trec import title_and_text
from glassrank.errors import InputError
from glassrank.files import LONGEST_LINE, LONGEST_ROW, check_encoding, reading
from glassrank.types import Doc

_BEGIN = re.compile(rb"WARC/\d")
_DOCUMENTS = frozenset(("response", "resource", "conversion"))
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_CONTENT_TYPE = re.compile(rb"^content-type:([^\r\n]*+)", re.IGNORECASE | re.MULTILINE)
_TEXT = re.compile(rb"\s*+(?:$|text/|application/xhtml|application/xml)", re.IGNORECASE)
_NO_MARKUP = re.compile(rb"\s*+text/plain", re.IGNORECASE)
# Python has more charsets: some take a square of time, others raise what they like.
_CHARSET = re.compile(
    rb"charset\s*+=\s*+[\"']?((?:utf-(?:8|16)|iso-8859-|windows-|koi8-|gb|big5|euc-|shift_jis)"
    rb"[\w-]{0,20})",
    re.IGNORECASE,
)
_LOOKED_AT = 2048
"""Bytes of a page in which it may name its charset."""
_BLOCK = 1 << 20


def read_warc(path: Path, encoding: str = "utf-8") -> Read:
    """Each page of a file, numbered by its record. It is decoded as its HTTP header or the page
    itself says, else by `encoding`; bytes that do not fit are replaced."""
    check_encoding(encoding)
    with reading(path) as file:
        for number, fields, content in _records(file, path):
            if isinstance(content, InputError):
                yield number, content
                continue
            kind, body = _page(fields, content)
            if _TEXT.match(kind):  # no picture, and no answer of a name server
                yield number, attempted(_doc, fields, kind, body, encoding, path, number)


def _records(
    file: IO[bytes], path: Path
) -> Iterator[tuple[int, Mapping[str, str], bytes | InputError]]:
    """(number, fields of its header, content) of each document, or what is wrong with a record.
    Behind a broken one it goes on where the next begins."""
    number, line = 1, _first_line(file)
    while line:
        fields = _header(file) if _BEGIN.match(line) else {}
        length = fields.get("content-length", "")
        if not (length.isdecimal() and len(length) < 16):
            begin = "one without a length" if _BEGIN.match(line) else repr(line[:40])
            problem = f"expected a record, WARC/… and its header, found {begin}; mend or remove it"
            yield number, {}, InputError.at(path, number, problem)
            line = file.readline(LONGEST_ROW)
            while line and not _BEGIN.match(line):
                line = file.readline(LONGEST_ROW)
        else:
            size = int(length)
            if fields.get("warc-type", "").lower() not in _DOCUMENTS:
                _pass_over(file, size, path, number)
            elif size > LONGEST_LINE:
                _pass_over(file, size, path, number)
                problem = f"a page is longer than {LONGEST_LINE:,} bytes; leave it out"
                yield number, {}, InputError.at(path, number, problem)
            else:
                content = file.read(size)
                _check_whole(size - len(content), path, number)
                yield number, fields, content
            line = _first_line(file)
        number += 1


def _first_line(file: IO[bytes]) -> bytes:
    """Of the next record, behind blank lines; empty at the end of the file."""
    line = file.readline(LONGEST_ROW)
    while line and line.isspace():
        line = file.readline(LONGEST_ROW)
    return line


def _header(file: IO[bytes]) -> dict[str, str]:
    """A record's fields, by names in lower case. In ClueWeb09 some headers have a blank line
    inside, so it ends at the first one behind the length."""
    fields: dict[str, str] = {}
    size = 0
    while size < LONGEST_ROW:
        line = file.readline(LONGEST_ROW)
        size += len(line)
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        ended = not line.strip() and "content-length" in fields
        if ended or not line or line.startswith(b"HTTP/"):
            break
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def _pass_over(file: IO[bytes], size: int, path: Path, number: int) -> None:
    while size and (block := file.read(min(size, _BLOCK))):
        size -= len(block)
    _check_whole(size, path, number)


def _check_whole(missing: int, path: Path, number: int) -> None:
    if missing:
        problem = f"the file ends {missing:,} bytes before this record does; fetch it again"
        raise InputError.at(path, number, problem)


def _page(fields: Mapping[str, str], content: bytes) -> tuple[bytes, bytes]:
    """The type of a document's content, and the content itself without an HTTP header."""
    kind = fields.get("content-type", "").encode()
    if fields["warc-type"].lower() != "response":
        return kind, content
    if not kind.startswith(b"application/http"):
        return b"application/other", b""
    blank = _BLANK_LINE.search(content)
    head, body = (content[: blank.start()], content[blank.end() :]) if blank else (content, b"")
    declared = _CONTENT_TYPE.search(head)
    return declared[1] if declared else b"", body


def _doc(
    fields: Mapping[str, str], kind: bytes, body: bytes, encoding: str, path: Path, number: int
) -> Doc:
    record_id = fields.get("warc-record-id", "").strip("<>").removeprefix("urn:uuid:")
    doc_id = fields.get("warc-trec-id") or record_id
    if not doc_id:
        problem = "expected a WARC-TREC-ID or a WARC-Record-ID in the header, found none; add it"
        raise InputError.at(path, number, problem)
    if body.startswith(b"\x1f\x8b"):
        problem = f"{doc_id} is stored as its server compressed it; write it unpacked"
        raise InputError.at(path, number, problem)
    charset = _CHARSET.search(kind) or _CHARSET.search(body, 0, _LOOKED_AT)
    text = _decoded(body, charset[1].decode() if charset else encoding, encoding)
    title, text = ("", text) if _NO_MARKUP.match(kind) else title_and_text(text)
    check_not_empty(doc_id, title + text, path, number)
    return Doc(doc_id, text, title, fields.get("warc-target-uri", ""))


def _decoded(body: bytes, charset: str, encoding: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:  # a name that only looks like a charset's
        return body.decode(encoding, "replace")
