"""Archives of records that are not lines of text: WARC, and TREC CAR's CBOR.

WARC files hold pages as crawlers keep them, in ClueWeb09, ClueWeb12 and Common Crawl. A record is a
header, with the length of what follows. Documents are `response` records, a page behind its HTTP
header, and `resource` and `conversion` records, a page or its text. All others, and what is no
text, are passed over.

TREC CAR's paragraphs are CBOR: a header, `["CAR", [2], …]`, and a list of paragraphs, each
`[0, id, [text or link, …]]`: `[0, text]` is a text, `[1, [0, page, [section], page id, anchor
text]]` a link. Files of the first releases have no header.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from glassrank.corpus.records import Read, check_not_empty, try_doc
from glassrank.corpus.trec import extract_title_and_text
from glassrank.errors import InputError
from glassrank.storage.files import MAX_LINE_BYTES, MAX_ROW_BYTES, check_encoding, open_bytes
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
_KINDS = {0: "pages", 1: "outlines", 2: "paragraphs"}
_PARAGRAPHS = 2
_LONGEST = 1 << 20
"""Bytes of a paragraph; the longest that there are have some ten thousand."""
_DEEPEST = 16
_FRACTIONS = {25: ">e", 26: ">f", 27: ">d"}
_END = object()
"""Behind the last value: the end of the file, or the byte that ends the list."""


def read_warc(path: Path, encoding: str = "utf-8") -> Read:
    """Each page of a file, numbered by its record. It is decoded as its HTTP header or the page
    itself says, else by `encoding`; bytes that do not fit are replaced."""
    check_encoding(encoding)
    with open_bytes(path) as file:
        for number, fields, content in _records(file, path):
            if isinstance(content, InputError):
                yield number, content
                continue
            kind, body = _page(fields, content)
            if _TEXT.match(kind):  # no picture, and no answer of a name server
                yield number, try_doc(_doc, fields, kind, body, encoding, path, number)


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
            line = file.readline(MAX_ROW_BYTES)
            while line and not _BEGIN.match(line):
                line = file.readline(MAX_ROW_BYTES)
        else:
            size = int(length)
            if fields.get("warc-type", "").lower() not in _DOCUMENTS:
                _pass_over(file, size, path, number)
            elif size > MAX_LINE_BYTES:
                _pass_over(file, size, path, number)
                problem = f"a page is longer than {MAX_LINE_BYTES:,} bytes; leave it out"
                yield number, {}, InputError.at(path, number, problem)
            else:
                content = file.read(size)
                _check_whole(size - len(content), path, number)
                yield number, fields, content
            line = _first_line(file)
        number += 1


def _first_line(file: IO[bytes]) -> bytes:
    """Of the next record, behind blank lines; empty at the end of the file."""
    line = file.readline(MAX_ROW_BYTES)
    while line and line.isspace():
        line = file.readline(MAX_ROW_BYTES)
    return line


def _header(file: IO[bytes]) -> dict[str, str]:
    """A record's fields, by names in lower case. In ClueWeb09 some headers have a blank line
    inside, so it ends at the first one behind the length."""
    fields: dict[str, str] = {}
    size = 0
    while size < MAX_ROW_BYTES:
        line = file.readline(MAX_ROW_BYTES)
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
    title, text = ("", text) if _NO_MARKUP.match(kind) else extract_title_and_text(text)
    check_not_empty(doc_id, title + text, path, number)
    return Doc(doc_id, text, title, fields.get("warc-target-uri", ""))


def _decoded(body: bytes, charset: str, encoding: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:  # a name that only looks like a charset's
        return body.decode(encoding, "replace")


def read_trec_car(path: Path, encoding: str = "utf-8") -> Read:
    """Each paragraph of a file, numbered from 1: its texts, and the anchor texts of its links.
    The `encoding` of texts in CBOR is always UTF-8."""
    with open_bytes(path) as file:
        values = _Values(file, path)
        value = values.next(1)
        if isinstance(value, list) and value[:1] == ["CAR"]:
            _check_header(value, file, path)
            value = values.next(1)
        number = 1
        while value is not _END:
            yield number, try_doc(_paragraph, value, path, number)
            number += 1
            value = values.next(number)


def _check_header(header: list[Any], file: IO[bytes], path: Path) -> None:
    kind = header[1][0] if len(header) > 1 and isinstance(header[1], list) and header[1] else None
    if kind != _PARAGRAPHS:
        content = _KINDS.get(kind, repr(kind)) if isinstance(kind, int) else "something else"
        raise InputError(
            f"{path} holds TREC CAR's {content}, expected its paragraphs; name the file of those"
        )
    if file.read(1) != b"\x9f":
        raise InputError(f"{path}: expected a list of paragraphs; fetch the file again")


def _paragraph(value: Any, path: Path, number: int) -> Doc:
    match value:
        case [0, bytes() | str() as name, [*bodies]]:
            doc_id = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
            text = "".join(_text(body, path, number) for body in bodies)
            check_not_empty(doc_id, text, path, number)
            return Doc(doc_id, text)
    raise InputError.at(path, number, "expected a paragraph [0, id, texts]; is it another file?")


def _text(body: Any, path: Path, number: int) -> str:
    match body:
        case [0, str() as text]:
            return text
        case [1, [0, _, _, _, str() as anchor]]:
            return anchor
    raise InputError.at(path, number, "expected texts in UTF-8, and links; mend or remove it")


class _Values:
    """CBOR's values one after the other, as far as TREC CAR has them."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path
        self._number = 0
        self._left = 0

    def next(self, number: int) -> Any:
        """The next one; _END behind the last. Errors name it by its number."""
        self._number, self._left = number, _LONGEST
        first = self._file.read(1)
        return self._value(first[0], 0) if first else _END

    def _value(self, first: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise self._broken("lists are nested too deeply")
        kind, info = first >> 5, first & 31
        if kind == 7:
            return self._simple(info)
        if info == 31:
            return self._open_ended(kind, depth)
        size = self._size(info)
        if kind < 2:
            return size if kind == 0 else -1 - size
        if kind < 4:
            return _string(kind, self._bytes(size))
        if kind == 6:  # a tag: what the value behind it is for
            return self._value(self._byte(), depth + 1)
        return [self._value(self._byte(), depth + 1) for _ in range(size << (kind == 5))]

    def _open_ended(self, kind: int, depth: int) -> Any:
        """Values up to a break, or a string's pieces."""
        if kind in (0, 1, 6):
            raise self._broken("a number has no end")
        parts, pieces = [], []
        while (first := self._byte()) != 0xFF:
            if kind >= 4:
                parts.append(self._value(first, depth + 1))
            elif first >> 5 == kind:
                pieces.append(self._bytes(self._size(first & 31)))
            else:
                raise self._broken("a string has pieces of another kind")
        return parts if kind >= 4 else _string(kind, b"".join(pieces))

    def _size(self, info: int) -> int:
        if info > 27:
            raise self._broken("a length is none")
        return info if info < 24 else int.from_bytes(self._bytes(1 << (info - 24)))

    def _simple(self, info: int) -> Any:
        """What ends a list; false, true, nothing, or a fraction, of which only headers have any."""
        if info == 31:
            return _END
        if info in (25, 26, 27):
            (number,) = struct.unpack(_FRACTIONS[info], self._bytes(1 << (info - 24)))
            return number
        return {20: False, 21: True}.get(info)

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise self._broken(f"a paragraph is longer than {_LONGEST:,} bytes")
        data = self._file.read(size)
        if len(data) < size:
            raise self._broken("the file ends inside of it")
        return data

    def _broken(self, problem: str) -> InputError:
        return InputError.at(
            self._path, self._number, f"expected CBOR of TREC CAR, but {problem}; fetch it again"
        )


def _string(kind: int, data: bytes) -> bytes | str:
    """A text; what is none stays as bytes, which no text of a paragraph may be."""
    try:
        return data if kind == 2 else data.decode("utf-8")
    except UnicodeDecodeError:
        return data
