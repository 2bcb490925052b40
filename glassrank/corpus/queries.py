"""Readers and writers of queries (TSV, JSON Lines, TREC topics, TREC CAR outlines), folds (JSON)
and judgments (TREC's four columns, prels with five, BEIR's three); all but folds from ir_datasets
too.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from glassrank.corpus import irds
from glassrank.corpus.records import parse_object, take_id, take_text
from glassrank.corpus.trec import TOPIC_FIELDS, read_topics
from glassrank.errors import InputError
from glassrank.storage.files import (
    MAX_LINE_BYTES,
    MAX_ROW_BYTES,
    atomic_write,
    read_file,
    read_first_line,
    read_lines,
)
from glassrank.types import Qrel, Qrels, Query

FORMATS = ("tsv", "jsonl", "trec", "car", "irds")
_ID_FIELDS = ("query_id", "_id", "id", "qid")
_TEXT_FIELDS = ("text", "query", "title")
_LABEL = re.compile(r"[+-]?\d{1,9}")  # a larger number is a mistake, such as a wrong column


def read_queries(
    source: str | Path,
    field: str = "title",
    format: str | None = None,  # noqa: A002
    encoding: str = "utf-8",
) -> list[Query]:
    """Reads all queries of a file (or its `.gz`), in order. The first character distinguishes TSV,
    JSON Lines and TREC topics; TREC CAR's section paths (`Aftertaste/Wine`) need `format="car"`.
    `field` selects a topic's `title`, `desc` or `narr`."""
    if field not in TOPIC_FIELDS:
        raise InputError(f"unknown field {field!r}; expected one of {', '.join(TOPIC_FIELDS)}")
    if format not in (None, *FORMATS):
        raise InputError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    path = Path(source)
    if irds.is_irds(source, format):
        numbered: Iterator[tuple[int, str, str]] = (
            (number, *query)
            for number, query in enumerate(irds.irds_queries(str(source), field), 1)
        )
    else:
        first = "" if format else read_first_line(path, encoding).lstrip()[:1]
        kind = format or {"{": "jsonl", "<": "trec"}.get(first, "tsv")
        numbered = _read_file(path, field, kind, encoding)
    lines: dict[str, int] = {}
    queries: list[Query] = []
    for line, query_id, text in numbered:
        if not query_id or not text.strip():
            problem = f"expected an id and a text, found {query_id!r} and {text.strip()!r}"
            raise InputError.at(path, line, f"{problem}; add what is missing or remove the query")
        if query_id in lines:
            first = f"(first at line {lines[query_id]})"
            problem = f"expected each query id once, found {query_id!r} again {first}"
            raise InputError.at(path, line, f"{problem}; remove or rename one")
        lines[query_id] = line
        queries.append(Query(query_id, text.strip()))
    if not queries:
        raise InputError(f"{source} has no queries; expected at least one")
    return queries


def write_queries(queries: Iterable[Query], path: str | Path) -> None:
    """Writes JSON Lines to a `.jsonl` file, TSV to any other."""
    as_json = Path(path).name.removesuffix(".gz").endswith(".jsonl")
    with atomic_write(path) as file:
        for query_id, text in queries:
            if as_json:
                line = json.dumps({"_id": query_id, "text": text}, ensure_ascii=False)
            elif any(mark in query_id + text for mark in "\t\n\r"):
                raise InputError(
                    f"query {query_id!r} has a tab or a line break, which TSV cannot hold; "
                    "write to a .jsonl file"
                )
            else:
                line = f"{query_id}\t{text}"
            file.write(line + "\n")


def _read_file(path: Path, field: str, kind: str, encoding: str) -> Iterator[tuple[int, str, str]]:
    """(line, query id, text)"""
    if kind == "trec":
        yield from read_topics(path, field, encoding)
        return
    for number, line in read_lines(path, encoding):
        if not line.strip():
            continue
        if kind == "jsonl":
            fields = parse_object(line, path, number)
            query_id = take_id(fields, _ID_FIELDS, path, number)
            yield number, query_id, take_text(fields, _TEXT_FIELDS, path, number) or ""
        elif kind == "car":
            yield number, line.strip(), _outline_text(line.strip())
        else:
            cells = line.split("\t")
            if len(cells) != 2:
                problem = (
                    f"expected 2 columns separated by a tab (query id, text), found {len(cells)}"
                )
                hint = "correct the line, or name the file's format"
                raise InputError.at(path, number, f"{problem}; {hint}")
            yield number, cells[0].strip(), cells[1]


def _outline_text(section: str) -> str:
    """
    >>> _outline_text("enwiki:Aftertaste/Temporal%20taste%20perception")
    'Aftertaste Temporal taste perception'
    """
    return unquote(section.removeprefix("enwiki:").replace("/", " "))


def read_folds(path: str | Path) -> dict[str, int]:
    """The test fold of each query: lists of ids, or the published form of Robust04's folds."""
    path = Path(path)
    try:
        plain = json.loads(read_file(path, MAX_LINE_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    folds = list(plain.values()) if isinstance(plain, dict) else plain
    fold_of: dict[str, int] = {}
    for number, fold in enumerate(folds if isinstance(folds, list) else []):
        for query_id in _test_ids(fold, path):
            if fold_of.setdefault(str(query_id), number) != number:
                raise InputError(f"{path}: query {query_id!r} is in two folds; keep one of them")
    if not fold_of:
        raise InputError(f"{path} has no folds; expected a list of lists of query ids")
    return fold_of


def _test_ids(fold: Any, path: Path) -> list[Any]:
    if isinstance(fold, dict):
        fold = fold.get("predict", fold)
        fold = fold.get("test") if isinstance(fold, dict) else None
    if not isinstance(fold, list) or not all(isinstance(item, str | int) for item in fold):
        raise InputError(f"{path}: expected a list of query ids in each fold")
    return fold


def read_qrels(source: str | Path, format: str | None = None) -> Qrels:  # noqa: A002
    """Reads judgments of a file (or its `.gz`): query id -> document id -> relevance label.

    A line is `query iteration document label` (TREC, MS MARCO), `query document label` (BEIR, with
    or without its header), or `query document label method probability` (prels of the Million Query
    tracks, whose last columns are not used). A repeated judgment is accepted, since TREC's files
    have some; two labels for one document are an error. Labels below 0 (spam) are kept.
    """
    if format not in (None, "trec", "irds"):
        raise InputError(f"unknown format {format!r}; expected trec or irds")
    if irds.is_irds(source, format):
        numbered: Iterator[tuple[int, Qrel]] = enumerate(irds.irds_qrels(str(source)), 1)
    else:
        numbered = _read_judgments(Path(source))
    qrels: Qrels = {}
    for line, (query_id, doc_id, label) in numbered:
        labels = qrels.setdefault(query_id, {})
        if labels.setdefault(doc_id, label) != label:
            problem = f"expected one label for query {query_id!r} and document {doc_id!r}"
            both = f"found {labels[doc_id]} before and {label} here; remove one"
            raise InputError.at(source, line, f"{problem}, {both}")
    if not qrels:
        raise InputError(f"{source} has no judgments; expected at least one")
    return qrels


def write_qrels(qrels: Qrels, path: str | Path) -> None:
    """Writes TREC's four columns."""
    with atomic_write(path) as file:
        for query_id, labels in qrels.items():
            for doc_id, label in labels.items():
                for name in (query_id, doc_id):
                    if len(name.split()) != 1:
                        raise InputError(
                            f"the id {name!r} is empty or has a space, which a qrels file "
                            "cannot hold; rename it"
                        )
                file.write(f"{query_id} 0 {doc_id} {label}\n")


def _read_judgments(path: Path) -> Iterator[tuple[int, Qrel]]:
    width = 0
    for number, line in read_lines(path, max_bytes=MAX_ROW_BYTES):
        cells = line.split()
        if not cells:
            continue
        if not width:
            width = len(cells)
            if width == 3 and cells[2] == "score":  # BEIR's header: query-id corpus-id score
                continue
        if width not in (3, 4, 5) or len(cells) != width:
            expected = (
                f"{width} columns, as in the first line"
                if width in (3, 4, 5)
                else "4 columns (query, iteration, document, label), 3 (query, document, label) or "
                "5 (query, document, label, method, probability)"
            )
            raise InputError.at(
                path, number, f"expected {expected}, found {len(cells)}; correct the line"
            )
        doc_id, label = cells[1:3] if width == 5 else cells[-2:]
        if not _LABEL.fullmatch(label):
            problem = f"expected an integer relevance label of at most 9 digits, found {label!r}"
            raise InputError.at(path, number, f"{problem}; correct the line")
        yield number, Qrel(cells[0], doc_id, int(label))
