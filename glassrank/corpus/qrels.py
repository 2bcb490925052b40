"""Relevance judgments (qrels): TREC's four columns, its five of sampled judgments (prels), three
columns (BEIR), or ir_datasets."""

import re
from collections.abc import Iterator
from pathlib import Path

from glassrank.corpus import irds
from glassrank.errors import InputError
from glassrank.files import LONGEST_ROW, atomic_write, read_lines
from glassrank.types import Qrel, Qrels

_GRADE = re.compile(r"[+-]?\d{1,9}")
"""Larger ones are mistakes: a column too many, say. Measures compute with 64 bits."""


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
    if format == "irds" or (format is None and irds.is_name(source)):
        numbered: Iterator[tuple[int, Qrel]] = enumerate(irds.irds_qrels(str(source)), 1)
    else:
        numbered = _read_file(Path(source))
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


def _read_file(path: Path) -> Iterator[tuple[int, Qrel]]:
    width = 0
    for number, line in read_lines(path, longest=LONGEST_ROW):
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
