"""TREC CAR's paragraphs, in its CBOR files.

A file is a header, `["CAR", [2], …]`, and a list of paragraphs, each `[0, id, [text or link, …]]`:
`[0, text]` is a text, `[1, [0, page, [section], page id, anchor text]]` a link. Files of the first
releases have no header.
"""

import struct
from pathlib import Path
from typing import IO, Any

from glassrank.corpus.records import Read, attempted, check_not_empty
from glassrank.errors import InputError
from glassrank.files import reading
from glassrank.types import Doc

_KINDS = {0: "pages", 1: "outlines", 2: "paragraphs"}
_PARAGRAPHS = 2
_LONGEST = 1 << 20
"""Bytes of a paragraph; the longest that there are have some ten thousand."""
_DEEPEST = 16
_FRACTIONS = {25: ">e", 26: ">f", 27: ">d"}
_END = object()
"""Behind the last value: the end of the file, or the byte that ends the list."""


def read_trec_car(path: Path, encoding: str = "utf-8") -> Read:
    """Each paragraph of a file, numbered from 1: its texts, and the anchor texts of its links.
    The `encoding` of texts in CBOR is always UTF-8."""
    with reading(path) as file:
        values = _Values(file, path)
        value = values.next(1)
        if isinstance(value, list) and value[:1] == ["CAR"]:
            _check_header(value, file, path)
            value = values.next(1)
        number = 1
        while value is not _END:
            yield number, attempted(_paragraph, value, path, number)
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
