"""Readers of binary archives: WARC (ClueWeb, Common Crawl), and TREC CAR's paragraphs in CBOR.

Documents of a WARC are `response`, `resource` and `conversion` records that hold text. TREC CAR has
a header, `["CAR", [2], …]`, except in first releases, and a list of paragraphs `[0, id, bodies]`,
where a body is `[0, text]` or a link `[1, [0, page, [section], page id, anchor text]]`.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from glassrank.corpus.records import DocRecords, check_not_empty, try_doc
from glassrank.corpus.trec import extract_title_and_text
from glassrank.errors import InputError
from glassrank.storage.files import MAX_LINE_BYTES, MAX_ROW_BYTES, check_encoding, open_bytes
from glassrank.types import Doc

_BEGIN = re.compile(rb"WARC/\d")
_DOCUMENTS = frozenset(("response", "resource", "conversion"))
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_CONTENT_TYPE = re.compile(rb"^content-type:([^\r\n]*+)", re.IGNORECASE | re.MULTILINE)
_TEXT = re.compile(rb"\s*+(?:$|text/|application/xhtml|application/xml)", re.IGNORECASE)
_PLAIN_TEXT = re.compile(rb"\s*+text/plain", re.IGNORECASE)
# Python has more charsets: some take a square of time, others raise what they like.
_CHARSET = re.compile(
    rb"charset\s*+=\s*+[\"']?((?:utf-(?:8|16)|iso-8859-|windows-|koi8-|gb|big5|euc-|shift_jis)"
    rb"[\w-]{0,20})",
    re.IGNORECASE,
)
_CHARSET_BYTES = 2048  # bytes of a page that are searched for its charset
_BLOCK = 1 << 20
_KINDS = {0: "pages", 1: "outlines", 2: "paragraphs"}
_PARAGRAPHS = 2
_MAX_BYTES = 1 << 20  # bytes of a paragraph; real ones have at most some ten thousand
_MAX_DEPTH = 16
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_END = object()  # after the last value: the end of the file, or the byte that ends the list


def read_warc(path: Path, encoding: str = "utf-8") -> DocRecords:
    """Pages with their record numbers; `encoding` is for those that name no charset."""
    check_encoding(encoding)
    with open_bytes(path) as file:
        for number, fields, content in _records(file, path):
            if isinstance(content, InputError):
                yield number, content
                continue
            kind, body = _page(fields, content)
            if _TEXT.match(kind):  # no image, and no answer of a name server
                yield number, try_doc(_doc, fields, kind, body, encoding, path, number)


def _records(
    file: IO[bytes], path: Path
) -> Iterator[tuple[int, Mapping[str, str], bytes | InputError]]:
    """(number, header, content) of each document, or the error of a broken record."""
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
                _skip(file, size, path, number)
            elif size > MAX_LINE_BYTES:
                _skip(file, size, path, number)
                problem = f"a page is longer than {MAX_LINE_BYTES:,} bytes; leave it out"
                yield number, {}, InputError.at(path, number, problem)
            else:
                content = file.read(size)
                _check_complete(size - len(content), path, number)
                yield number, fields, content
            line = _first_line(file)
        number += 1


def _first_line(file: IO[bytes]) -> bytes:
    """The first line of the next record; empty at the end of the file."""
    line = file.readline(MAX_ROW_BYTES)
    while line and line.isspace():
        line = file.readline(MAX_ROW_BYTES)
    return line


def _header(file: IO[bytes]) -> dict[str, str]:
    """The fields of a header, with lower-case names. Some headers of ClueWeb09 contain a blank
    line, so a header ends at the first one after the length."""
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


def _skip(file: IO[bytes], size: int, path: Path, number: int) -> None:
    while size and (block := file.read(min(size, _BLOCK))):
        size -= len(block)
    _check_complete(size, path, number)


def _check_complete(missing: int, path: Path, number: int) -> None:
    if missing:
        problem = f"the file ends {missing:,} bytes before this record does; fetch it again"
        raise InputError.at(path, number, problem)


def _page(fields: Mapping[str, str], content: bytes) -> tuple[bytes, bytes]:
    """The content type of a document, and its content without the HTTP header."""
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
    charset = _CHARSET.search(kind) or _CHARSET.search(body, 0, _CHARSET_BYTES)
    text = _decode(body, charset[1].decode() if charset else encoding, encoding)
    title, text = ("", text) if _PLAIN_TEXT.match(kind) else extract_title_and_text(text)
    check_not_empty(doc_id, title + text, path, number)
    return Doc(doc_id, text, title, fields.get("warc-target-uri", ""))


def _decode(body: bytes, charset: str, encoding: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:  # a name that only looks like a charset's
        return body.decode(encoding, "replace")


def read_trec_car(path: Path, encoding: str = "utf-8") -> DocRecords:
    """Paragraphs, numbered from 1, with the anchor texts of their links."""
    with open_bytes(path) as file:
        values = _CborReader(file, path)
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
            f"{path} contains TREC CAR's {content}, expected its paragraphs; name that file"
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


class _CborReader:
    """Reads the subset of CBOR that TREC CAR uses, one value after another."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path
        self._number = 0
        self._left = 0

    def next(self, number: int) -> Any:
        """The next value; _END after the last. `number` is for errors."""
        self._number, self._left = number, _MAX_BYTES
        first = self._file.read(1)
        return self._value(first[0], 0) if first else _END

    def _value(self, first: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
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
            return _decode_string(kind, self._bytes(size))
        if kind == 6:  # a tag of the next value
            return self._value(self._byte(), depth + 1)
        return [self._value(self._byte(), depth + 1) for _ in range(size << (kind == 5))]

    def _open_ended(self, kind: int, depth: int) -> Any:
        """Values up to a break, or the parts of a string."""
        if kind in (0, 1, 6):
            raise self._broken("a number has no end")
        values, strings = [], []
        while (first := self._byte()) != 0xFF:
            if kind >= 4:
                values.append(self._value(first, depth + 1))
            elif first >> 5 == kind:
                strings.append(self._bytes(self._size(first & 31)))
            else:
                raise self._broken("a string has parts of another type")
        return values if kind >= 4 else _decode_string(kind, b"".join(strings))

    def _size(self, info: int) -> int:
        if info > 27:
            raise self._broken("a length is not valid")
        return info if info < 24 else int.from_bytes(self._bytes(1 << (info - 24)))

    def _simple(self, info: int) -> Any:
        """The end of a list, a boolean, None, or a float (only headers have these)."""
        if info == 31:
            return _END
        if info in (25, 26, 27):
            (number,) = struct.unpack(_FLOATS[info], self._bytes(1 << (info - 24)))
            return number
        return {20: False, 21: True}.get(info)

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise self._broken(f"a paragraph is longer than {_MAX_BYTES:,} bytes")
        data = self._file.read(size)
        if len(data) < size:
            raise self._broken("the file ends inside it")
        return data

    def _broken(self, problem: str) -> InputError:
        return InputError.at(
            self._path, self._number, f"expected CBOR of TREC CAR, but {problem}; fetch it again"
        )


def _decode_string(kind: int, data: bytes) -> bytes | str:
    """A text; invalid UTF-8 stays as bytes, which a paragraph may not contain."""
    try:
        return data if kind == 2 else data.decode("utf-8")
    except UnicodeDecodeError:
        return data
