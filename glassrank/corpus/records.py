"""Documents one record at a time: JSON Lines, TSV and CSV.

The three differ in how they write a record; `make_doc` turns its named fields into a document.
Every reader yields (line number, document) and keeps nothing of what it has read. In place of a bad
document it yields what is wrong with it, as an error that nobody has raised yet: the next may be
good. It raises what makes the rest of a file unreadable.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from glassrank.errors import InputError, describe_type
from glassrank.storage.files import MAX_LINE_BYTES, read_lines
from glassrank.types import Doc

# The names the field's collections use: ours, BEIR, Anserini, MS MARCO, TREC.
ID_FIELDS = ("doc_id", "_id", "id", "docid", "pid", "docno")
TEXT_FIELDS = ("text", "contents", "body", "passage")
SOURCE_FIELDS = ("source", "url")

# MS MARCO's files have no header; the number of columns says which they are.
TSV_COLUMNS = {
    2: ("pid", "text"),
    3: ("id", "title", "text"),
    4: ("docid", "url", "title", "body"),
}

MOST_COLUMNS = 1000

Read = Iterator[tuple[int, Doc | InputError]]
"""Line numbers, with a document or what is wrong with it."""


def try_doc(make: Callable[..., Doc], *arguments: object) -> Doc | InputError:
    """What comes of it: a document, or what is wrong with it."""
    try:
        return make(*arguments)
    except InputError as error:
        return error


def read_jsonl(path: Path, encoding: str = "utf-8") -> Read:
    """One JSON object on each line."""

    def make(line: str, number: int) -> Doc:
        return make_doc(parse_object(line, path, number), path, number)

    for number, line in read_lines(path, encoding):
        if line.strip():
            yield number, try_doc(make, line, number)


def read_tsv(path: Path, encoding: str = "utf-8") -> Read:
    """Columns by number as in `TSV_COLUMNS`, or by name where the first line is a header."""
    names: tuple[str, ...] = ()
    for number, line in read_lines(path, encoding):
        if not line.strip():
            continue
        cells = line.split("\t", MOST_COLUMNS)
        if not names:
            header = tuple(cell.strip().lower() for cell in cells)
            if header[0] in ID_FIELDS and not set(header).isdisjoint(TEXT_FIELDS):
                names = header
                continue
            if len(cells) not in TSV_COLUMNS:
                raise InputError.at(
                    path,
                    number,
                    "expected 2 (id, text), 3 (id, title, text) or 4 (id, url, title, text) "
                    f"columns separated by tabs, found {len(cells)}; "
                    "correct the line, or name other columns in a header line",
                )
            names = TSV_COLUMNS[len(cells)]
        yield number, try_doc(_from_cells, names, cells, path, number)


def read_csv(path: Path, encoding: str = "utf-8") -> Read:
    """A header row names the columns; a quoted cell may hold line breaks."""
    # Python's csv module stops at 131,072 characters; documents are longer, a forgotten quote more.
    csv.field_size_limit(MAX_LINE_BYTES)
    rows = csv.reader((line + "\n" for _, line in read_lines(path, encoding)), strict=True)
    names: list[str] = []
    number = 1  # where the row starts: `line_num` is where it ends
    try:
        for cells in rows:
            if cells and not names:  # a blank line has no cells
                names = [cell.strip().lower() for cell in cells]
                if set(names).isdisjoint(ID_FIELDS) or set(names).isdisjoint(TEXT_FIELDS):
                    raise InputError.at(
                        path,
                        number,
                        f"expected a header row with an id column ({', '.join(ID_FIELDS)}) and "
                        f"a text column ({', '.join(TEXT_FIELDS)}), found {', '.join(names)}; "
                        "add or rename the columns",
                    )
            elif cells:
                yield number, try_doc(_from_cells, names, cells, path, number)
            number = rows.line_num + 1
    except csv.Error as error:
        raise InputError.at(
            path,
            number,
            f"expected a CSV row, found a damaged one ({error}); "
            "close the quotes around its cells, and double those inside",
        ) from None


def make_doc(fields: Mapping[str, object], path: Path, line: int) -> Doc:
    """A document of named fields; those without a place in `Doc` are kept in its metadata.

    >>> make_doc({"_id": "7", "title": "Owls", "text": "They hoot.", "year": 1999}, Path("d"), 1)
    Doc(doc_id='7', text='They hoot.', title='Owls', source='', metadata={'year': 1999})
    """
    rest = dict(fields)
    doc_id = take_id(rest, ID_FIELDS, path, line)
    title = take_text(rest, ("title",), path, line) or ""
    text = take_text(rest, TEXT_FIELDS, path, line)
    if text is None:
        raise InputError.at(path, line, _missing(TEXT_FIELDS, fields))
    source = take_text(rest, SOURCE_FIELDS, path, line) or ""
    metadata = rest.pop("metadata", None) or {}
    if not isinstance(metadata, dict):
        metadata = {"metadata": metadata}
    check_not_empty(doc_id, title + text, path, line)
    return Doc(doc_id, text, title, source, {**metadata, **rest})


def to_docs(given: Iterable[object]) -> Iterator[Doc]:
    """Documents, dicts with the names of a JSONL file's fields, or texts. Without an id, the place
    among them, from 0 on, is one.

    >>> [doc.doc_id for doc in to_docs(["Owls hoot.", {"id": "b", "text": "Dogs bark."}])]
    ['0', 'b']
    """
    if isinstance(given, str | bytes | Mapping):
        raise InputError(
            f"expected a list of documents, not {describe_type(given)}; give [document]"
        )
    for place, item in enumerate(given):
        if isinstance(item, Doc):
            yield item
            continue
        fields = {"text": item} if isinstance(item, str) else item
        if not isinstance(fields, Mapping):
            raise InputError(
                f"document {place} is {describe_type(item)}; expected a Doc, a dict or a text"
            )
        named = any(name in fields for name in ID_FIELDS)
        yield make_doc(fields if named else {"doc_id": str(place), **fields}, Path("docs"), place)


def check_not_empty(doc_id: str, text: str, path: Path, line: int) -> None:
    """`text` is all there is to search: a title alone will do, as in several BEIR collections."""
    if not text.strip():
        raise InputError.at(
            path,
            line,
            f"expected a text for document {doc_id!r}, found an empty one; "
            "fill it in, remove the document, or pass over all such ones (--skip-bad)",
        )


def read_text_lines(path: Path, encoding: str) -> str:
    """A file that is one text."""
    lines, size = [], 0
    for number, line in read_lines(path, encoding):
        lines.append(line)
        size += len(line) + 1
        check_size(size, path, number)
    return "\n".join(lines)


def check_size(size: int, path: Path, line: int) -> None:
    """Of a text that goes over several lines: it may be as long as one on a line."""
    if size > MAX_LINE_BYTES:
        raise InputError.at(
            path, line, f"a text is longer than {MAX_LINE_BYTES:,} characters; cut it into several"
        )


def parse_object(line: str, path: Path, number: int) -> dict[str, object]:
    """One line of JSONL; an error names file and line."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError.at(
            path,
            number,
            f"expected one JSON object on the line, found broken JSON ({error}); correct the line",
        ) from None
    if not isinstance(fields, dict):
        raise InputError.at(
            path,
            number,
            f"expected one JSON object on the line, found {describe_type(fields)}; "
            "write each record as {...} on a line of its own",
        )
    return fields


def take_id(fields: dict[str, object], names: tuple[str, ...], path: Path, line: int) -> str:
    """Removes and returns the id. Numbers will do: JSON files often have them."""
    name = next((name for name in names if name in fields), None)
    if name is None:
        raise InputError.at(path, line, _missing(names, fields))
    if type(fields[name]) is int:
        fields[name] = str(fields[name])
    value = take_text(fields, (name,), path, line)
    if not value or value.isspace():
        raise InputError.at(path, line, f"expected an id in {name!r}, found none; fill it in")
    return value


def take_text(
    fields: dict[str, object], names: tuple[str, ...], path: Path, line: int
) -> str | None:
    """Removes and returns the first field there is; None if there is none."""
    name = next((name for name in names if name in fields), None)
    if name is None:
        return None
    value = fields.pop(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError.at(
            path, line, f"expected a string in {name!r}, found {describe_type(value)}; quote it"
        )
    if not _is_unicode(value):
        raise InputError.at(
            path,
            line,
            f"expected Unicode text in {name!r}, found half of a \\u surrogate pair; remove it",
        )
    return value


def _is_unicode(text: str) -> bool:
    # JSON can spell half a character; no file we write could hold it.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _missing(names: tuple[str, ...], fields: Mapping[str, object]) -> str:
    return (
        f"expected a field named {', '.join(names[:-1])} or {names[-1]}, "
        f"found {', '.join(fields) or 'no fields'}; add or rename the field"
    )


def _from_cells(names: Sequence[str], cells: Sequence[str], path: Path, line: int) -> Doc:
    if len(cells) != len(names):
        raise InputError.at(
            path,
            line,
            f"expected {len(names)} columns, as in the first line, found {len(cells)}; "
            "look for a missing or unescaped separator",
        )
    return make_doc(dict(zip(names, cells, strict=True)), path, line)
