"""Queries: TSV (MS MARCO), JSON Lines (BEIR), TREC topics, TREC CAR outlines, or ir_datasets; their
folds for cross-validation, as JSON; and judgments of their documents (qrels): TREC's four columns,
its five of sampled judgments (prels), three columns (BEIR), or ir_datasets."""

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
    read_lines,
)
from glassrank.types import Qrel, Qrels, Query

FORMATS = ("tsv", "jsonl", "trec", "car", "irds")
_ID_FIELDS = ("query_id", "_id", "id", "qid")
_TEXT_FIELDS = ("text", "query", "title")
_GRADE = re.compile(r"[+-]?\d{1,9}")
"""Larger ones are mistakes: a column too many, say. Measures compute with 64 bits."""


def read_queries(
    source: str | Path,
    field: str = "title",
    format: str | None = None,  # noqa: A002
    encoding: str = "utf-8",
) -> list[Query]:
    """All queries of a file (or its `.gz`), in its order.

    The first character tells TSV, JSON Lines and TREC topics apart; TREC CAR's section paths
    (`Aftertaste/Wine`) need `format="car"`. `field` chooses a topic's `title`, `desc` or `narr`.
    """
    if field not in TOPIC_FIELDS:
        raise InputError(f"unknown field {field!r}; expected one of {', '.join(TOPIC_FIELDS)}")
    if format not in (None, *FORMATS):
        raise InputError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    path = Path(source)
    if format == "irds" or (format is None and irds.is_dataset_name(source)):
        numbered: Iterator[tuple[int, str, str]] = (
            (number, *query)
            for number, query in enumerate(irds.irds_queries(str(source), field), 1)
        )
    else:
        numbered = _read_file(path, field, format or _sniff(path, encoding), encoding)
    lines: dict[str, int] = {}
    queries: list[Query] = []
    for line, query_id, text in numbered:
        if not query_id or not text.strip():
            raise InputError.at(
                path,
                line,
                f"expected an id and a text, found the id {query_id!r} and the text "
                f"{text.strip()!r}; fill in what is missing or remove the query",
            )
        if query_id in lines:
            raise InputError.at(
                path,
                line,
                f"expected each query id once, found {query_id!r} again "
                f"(first at line {lines[query_id]}); remove or rename one",
            )
        lines[query_id] = line
        queries.append(Query(query_id, text.strip()))
    if not queries:
        raise InputError(f"{source} holds no queries; expected at least one")
    return queries


def write_queries(queries: Iterable[Query], path: str | Path) -> None:
    """JSON Lines where the name says `.jsonl`, TSV elsewhere."""
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


def _sniff(path: Path, encoding: str) -> str:
    first = next((line.lstrip()[0] for _, line in read_lines(path, encoding) if line.strip()), "")
    return {"{": "jsonl", "<": "trec"}.get(first, "tsv")


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
                raise InputError.at(
                    path,
                    number,
                    "expected 2 columns separated by a tab (query id, text), "
                    f"found {len(cells)}; correct the line, or name the file's format",
                )
            yield number, cells[0].strip(), cells[1]


def _outline_text(section: str) -> str:
    """
    >>> _outline_text("enwiki:Aftertaste/Temporal%20taste%20perception")
    'Aftertaste Temporal taste perception'
    """
    return unquote(section.removeprefix("enwiki:").replace("/", " "))


def read_folds(path: str | Path) -> dict[str, int]:
    """The fold in which each query is tested: from lists of query ids, one for each fold, or as
    the folds of Robust04 are passed on, `{"s1": {"predict": {"test": [ids]}}}`."""
    path = Path(path)
    try:
        plain = json.loads(read_file(path, MAX_LINE_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    folds = list(plain.values()) if isinstance(plain, dict) else plain
    fold_of: dict[str, int] = {}
    for number, fold in enumerate(folds if isinstance(folds, list) else []):
        for query_id in _tested(fold, path):
            if fold_of.setdefault(str(query_id), number) != number:
                raise InputError(f"{path}: query {query_id!r} is in two folds; keep one of them")
    if not fold_of:
        raise InputError(f"{path} has no folds; expected a list of lists of query ids")
    return fold_of


def _tested(fold: Any, path: Path) -> list[Any]:
    if isinstance(fold, dict):
        fold = fold.get("predict", fold)
        fold = fold.get("test") if isinstance(fold, dict) else None
    if not isinstance(fold, list):
        raise InputError(f"{path}: expected a list of query ids in each fold")
    if not all(isinstance(query_id, str | int) for query_id in fold):
        raise InputError(f"{path}: expected query ids in each fold, found something else")
    return fold


def read_qrels(
    source: str | Path,
    format: str | None = None,  # noqa: A002
) -> Qrels:
    """Judgments of a file (or its `.gz`): query id -> document id -> grade.

    A line is `query iteration document grade` (TREC, MS MARCO), `query document grade` (BEIR, with
    or without its header), or `query document grade method probability` (prels of the Million Query
    tracks, whose last columns measures do not read). The same judgment twice is accepted, as TREC's
    own files have some; two grades for one document are not. Grades below 0 (spam) are kept.
    """
    if format not in (None, "trec", "irds"):
        raise InputError(f"unknown format {format!r}; expected trec or irds")
    if format == "irds" or (format is None and irds.is_dataset_name(source)):
        numbered: Iterator[tuple[int, Qrel]] = enumerate(irds.irds_qrels(str(source)), 1)
    else:
        numbered = _judgments_of(Path(source))
    qrels: Qrels = {}
    for line, (query_id, doc_id, grade) in numbered:
        grades = qrels.setdefault(query_id, {})
        if grades.setdefault(doc_id, grade) != grade:
            raise InputError.at(
                source,
                line,
                f"expected one grade for query {query_id!r} and document {doc_id!r}, "
                f"found {grades[doc_id]} before and {grade} here; remove one",
            )
    if not qrels:
        raise InputError(f"{source} holds no judgments; expected at least one")
    return qrels


def write_qrels(qrels: Qrels, path: str | Path) -> None:
    """TREC's four columns."""
    with atomic_write(path) as file:
        for query_id, grades in qrels.items():
            for doc_id, grade in grades.items():
                for name in (query_id, doc_id):
                    if len(name.split()) != 1:
                        raise InputError(
                            f"the id {name!r} is empty or has a space, which a qrels file "
                            "cannot hold; rename it"
                        )
                file.write(f"{query_id} 0 {doc_id} {grade}\n")


def _judgments_of(path: Path) -> Iterator[tuple[int, Qrel]]:
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
                else "4 columns (query, iteration, document, grade), 3 (query, document, grade) or "
                "5 (query, document, grade, method, probability)"
            )
            raise InputError.at(
                path, number, f"expected {expected}, found {len(cells)}; correct the line"
            )
        doc_id, grade = cells[1:3] if width == 5 else cells[-2:]
        if not _GRADE.fullmatch(grade):
            raise InputError.at(
                path,
                number,
                f"expected a whole number as the grade, found {grade!r}; "
                "correct the line (nine digits are the most)",
            )
        yield number, Qrel(cells[0], doc_id, int(grade))
