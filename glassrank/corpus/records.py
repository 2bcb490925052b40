"""Reads documents as records: JSON Lines, TSV and CSV.

Readers yield (line number, document), or the error of a bad document, since the next may be good;
they raise an error if the rest of the file cannot be read.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from glassrank.errors import InputError, describe_type
from glassrank.storage.files import MAX_LINE_BYTES, read_lines
from glassrank.types import Doc

# Names in our files, BEIR, Anserini, MS MARCO and TREC.
ID_FIELDS = ("doc_id", "_id", "id", "docid", "pid", "docno")
TEXT_FIELDS = ("text", "contents", "body", "passage")
SOURCE_FIELDS = ("source", "url")

# MS MARCO's files have no header: the number of columns decides.
TSV_COLUMNS = {
    2: ("pid", "text"),
    3: ("id", "title", "text"),
    4: ("docid", "url", "title", "body"),
}

MAX_COLUMNS = 1000

DocRecords = Iterator[tuple[int, Doc | InputError]]  # (line number, document or its error)


def try_doc(make: Callable[..., Doc], *arguments: object) -> Doc | InputError:
    """Returns the document, or the `InputError`."""
    try:
        return make(*arguments)
    except InputError as error:
        return error


def read_jsonl(path: Path, encoding: str = "utf-8") -> DocRecords:
    """Reads a JSON object from each line."""

    def make(line: str, number: int) -> Doc:
        return make_doc(parse_object(line, path, number), path, number)

    for number, line in read_lines(path, encoding):
        if line.strip():
            yield number, try_doc(make, line, number)


def read_tsv(path: Path, encoding: str = "utf-8") -> DocRecords:
    """Reads columns as in `TSV_COLUMNS`, or as the header in the first line names them."""
    names: tuple[str, ...] = ()
    for number, line in read_lines(path, encoding):
        if not line.strip():
            continue
        cells = line.split("\t", MAX_COLUMNS)
        if not names:
            header = tuple(cell.strip().lower() for cell in cells)
            if header[0] in ID_FIELDS and not set(header).isdisjoint(TEXT_FIELDS):
                names = header
                continue
            if len(cells) not in TSV_COLUMNS:
                columns = "2 (id, text), 3 (id, title, text) or 4 (id, url, title, text) columns"
                problem = f"expected {columns} separated by tabs, found {len(cells)}"
                hint = "correct the line, or name other columns in a header line"
                raise InputError.at(path, number, f"{problem}; {hint}")
            names = TSV_COLUMNS[len(cells)]
        yield number, try_doc(_from_cells, names, cells, path, number)


def read_csv(path: Path, encoding: str = "utf-8") -> DocRecords:
    """Reads rows under a header that names the columns; a quoted cell may have line breaks."""
    # The default limit of 131,072 characters is too small for documents.
    csv.field_size_limit(MAX_LINE_BYTES)
    rows = csv.reader((line + "\n" for _, line in read_lines(path, encoding)), strict=True)
    names: list[str] = []
    number = 1  # where the row starts: `line_num` is where it ends
    try:
        for cells in rows:
            if cells and not names:  # a blank line has no cells
                names = [cell.strip().lower() for cell in cells]
                if set(names).isdisjoint(ID_FIELDS) or set(names).isdisjoint(TEXT_FIELDS):
                    columns = (
                        f"an id ({', '.join(ID_FIELDS)}) and a text ({', '.join(TEXT_FIELDS)})"
                    )
                    problem = f"expected a header with {columns}, found {', '.join(names)}"
                    raise InputError.at(path, number, f"{problem}; add or rename the columns")
            elif cells:
                yield number, try_doc(_from_cells, names, cells, path, number)
            number = rows.line_num + 1
    except csv.Error as error:
        hint = "close the quotes around its cells, and double those inside"
        problem = f"expected a CSV row, found a damaged one ({error}); {hint}"
        raise InputError.at(path, number, problem) from None


def make_doc(fields: Mapping[str, object], path: Path, line: int) -> Doc:
    """A document of named fields; those that `Doc` does not have go to its metadata.

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
    """Converts documents, dicts with the fields of JSONL, or texts. The default id is the position
    from 0.

    >>> [doc.doc_id for doc in to_docs(["Owls hoot.", {"id": "b", "text": "Dogs bark."}])]
    ['0', 'b']
    """
    if isinstance(given, str | bytes | Mapping):
        raise InputError(
            f"expected a list of documents, not {describe_type(given)}; give [document]"
        )
    for place, item in enumerate(given):
        if isinstance(item, Doc):
            for name in ("doc_id", "text"):
                if not isinstance(value := getattr(item, name), str):
                    raise InputError(
                        f"the {name} of document {place} is {describe_type(value)}; expected a text"
                    )
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
    """`text` is title and text: several BEIR collections have documents with only a title."""
    if not text.strip():
        problem = f"expected a text for document {doc_id!r}, found an empty one"
        hint = "add it, remove the document, or skip all such documents (--skip-bad)"
        raise InputError.at(path, line, f"{problem}; {hint}")


def read_text_lines(path: Path, encoding: str) -> str:
    """The text of a file."""
    lines, size = [], 0
    for number, line in read_lines(path, encoding):
        lines.append(line)
        size += len(line) + 1
        check_size(size, path, number)
    return "\n".join(lines)


def check_size(size: int, path: Path, line: int) -> None:
    """Limits a text of several lines to the size of one on a line."""
    if size > MAX_LINE_BYTES:
        problem = f"a text is longer than {MAX_LINE_BYTES:,} characters; split it"
        raise InputError.at(path, line, problem)


def parse_object(line: str, path: Path, number: int) -> dict[str, object]:
    """Parses a line of JSONL."""
    expected = "expected one JSON object on the line"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem = f"{expected}, found broken JSON ({error}); correct the line"
        raise InputError.at(path, number, problem) from None
    if not isinstance(fields, dict):
        found_type = describe_type(fields)
        problem = f"{expected}, found {found_type}; write each record as {{...}} on its own line"
        raise InputError.at(path, number, problem)
    return fields


def take_id(fields: dict[str, object], names: tuple[str, ...], path: Path, line: int) -> str:
    """Removes and returns the id; an integer, as in many JSON files, becomes a string."""
    name = next((name for name in names if name in fields), None)
    if name is None:
        raise InputError.at(path, line, _missing(names, fields))
    if type(fields[name]) is int:
        fields[name] = str(fields[name])
    value = take_text(fields, (name,), path, line)
    if not value or value.isspace():
        raise InputError.at(path, line, f"expected an id in {name!r}, found none; add it")
    return value


def take_text(
    fields: dict[str, object], names: tuple[str, ...], path: Path, line: int
) -> str | None:
    """Removes and returns the first of these fields that exists; None if none does."""
    name = next((name for name in names if name in fields), None)
    if name is None:
        return None
    value = fields.pop(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        problem = f"expected a string in {name!r}, found {describe_type(value)}; quote it"
        raise InputError.at(path, line, problem)
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can spell half a character, which cannot be written
        problem = f"expected Unicode text in {name!r}, found half of a \\u surrogate pair"
        raise InputError.at(path, line, f"{problem}; remove it") from None
    return value


def _missing(names: tuple[str, ...], fields: Mapping[str, object]) -> str:
    return (
        f"expected a field named {', '.join(names[:-1])} or {names[-1]}, "
        f"found {', '.join(fields) or 'no fields'}; add or rename the field"
    )


def _from_cells(names: Sequence[str], cells: Sequence[str], path: Path, line: int) -> Doc:
    if len(cells) != len(names):
        problem = f"expected {len(names)} columns, as in the first line, found {len(cells)}"
        raise InputError.at(path, line, f"{problem}; look for a missing or unescaped separator")
    return make_doc(dict(zip(names, cells, strict=True)), path, line)
