"""Reads and writes runs: TREC's six columns, MS MARCO's three, or its candidates with texts.

A run has millions of rows, so they are read in blocks, a column at a time; a file is read line by
line only to find an error.
"""

import codecs
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.storage.files import (
    MAX_ROW_BYTES,
    atomic_write,
    read_blocks,
    read_first_line,
    read_lines,
)
from glassrank.types import Run

_BLOCK = 1 << 16  # bytes; larger blocks do not fit the cache of the CPU
_SHARED = 1 << 18  # documents; frequent ones come early, and a larger table is slow
_SIGN_BIT = -(1 << 31)  # of a 32-bit float, seen as an integer
_COLUMNS = {6: "(query, Q0, document, rank, score, tag)", 3: "(query, document, rank)"}


def read_run(path: str | Path) -> Run:
    """Reads a run from a file, or from its `.gz`.

    Lines are `query Q0 document rank score tag` (TREC: the rank is ignored) or `query document
    rank` (MS MARCO: the score is minus the rank). The rows of a query keep their order, and need
    not be consecutive. MS MARCO's `top1000.dev.tsv` (query, document and both texts, separated by
    tabs) has no ranks: the order of its lines is taken.
    """
    if read_first_line(path).count("\t") == 3:
        return _read_candidates(path)
    position: dict[str, int] = {}  # of each query
    shared: dict[str, str] = {}  # one string for all rows of a document
    docs: list[str] = []
    owners = [np.empty(0, np.int64)]  # each row's query, by position
    scores = [np.empty(0, np.float64)]
    width = 0
    for block in read_blocks(path, _BLOCK):
        try:
            block = block.removeprefix(codecs.BOM_UTF8)
            if block.isspace():
                continue
            width = width or len(block.lstrip().partition(b"\n")[0].split())
            cells = _cells(block, width)
            if width == 6:
                values = np.array(list(map(float, cells[4::6])))
            else:
                values = -np.array(list(map(int, cells[2::3])), np.float64)
            valid = bool(np.isfinite(values).all())
        except (ValueError, OverflowError):  # wrong columns, not a number, not UTF-8
            valid = False
        if not valid:
            raise _first_problem(path, width)
        queries, names = cells[::width], cells[2 if width == 6 else 1 :: width]
        for query_id in dict.fromkeys(queries):
            position.setdefault(query_id, len(position))
        owners.append(np.array(list(map(position.__getitem__, queries)), np.int64))
        share = shared.setdefault if len(shared) < _SHARED else shared.get
        docs.extend(map(share, names, names))
        scores.append(values)
    if not docs:
        raise InputError(f"{path} has no rows; expected at least one")
    owner, score = np.concatenate(owners), np.concatenate(scores)
    if (np.diff(owner) < 0).any():
        order = np.argsort(owner, kind="stable")
        docs, score = [docs[i] for i in order.tolist()], score[order]
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner))))
    run = Run(tuple(position), offsets, docs, score)
    _check_unique(run, path)
    return run


def _read_candidates(path: str | Path) -> Run:
    docs: dict[str, list[str]] = {}
    for number, line in read_lines(path):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != 4 or len(cells[0].split()) != 1 or len(cells[1].split()) != 1:
            expected = "query id, document id and their texts, separated by tabs"
            raise InputError.at(path, number, f"expected {expected}; correct the line")
        docs.setdefault(cells[0].strip(), []).append(cells[1].strip())
    rows = ((query, mine, -np.arange(1.0, len(mine) + 1)) for query, mine in docs.items())
    run = Run.from_rows(rows)
    for query_id, mine in docs.items():
        if len(set(mine)) < len(mine):
            twice = next(doc for doc in mine if mine.count(doc) > 1)
            raise InputError(
                f"{path} has document {twice!r} twice for query {query_id!r}; remove one"
            )
    return run


def write_run(run: Run, path: str | Path, tag: str = "glassrank") -> None:
    """Writes TREC's six columns, by descending score; ties keep their order. trec_eval reads scores
    as 32-bit floats and orders ties in its own way, so a score that is not below the previous one
    is lowered to the next smaller float."""
    with atomic_write(path) as file:
        for query_id, docs, scores in run.items():
            order = np.argsort(-scores, kind="stable")
            ranked = [docs[i] for i in order.tolist()]
            _check_ids([query_id, tag, *ranked])
            lowered = _strictly_decreasing(scores[order])
            if not np.isfinite(lowered).all():
                raise InputError(
                    f"the scores of query {query_id!r} do not all fit in 32-bit floats; "
                    "scale them before writing the run"
                )
            file.writelines(
                f"{query_id} Q0 {doc_id} {rank} {score} {tag}\n"
                for rank, (doc_id, score) in enumerate(
                    zip(ranked, lowered.astype(str).tolist(), strict=True), 1
                )
            )


def _cells(block: bytes, width: int) -> list[str]:
    """The cells of all lines in one list; a ValueError unless every line has `width` of them."""
    if width not in _COLUMNS:
        raise ValueError
    cells = block.decode("utf-8").split()
    data = np.frombuffer(b"\n" + block, np.uint8)
    blanks = np.flatnonzero(data <= ord(" "))
    line = np.cumsum(data[blanks] == ord("\n"))  # of each blank
    line = line[np.diff(blanks, append=len(data)) > 1]  # of each cell: a blank before a gap
    first, last = line[::width], line[width - 1 :: width]
    if len(line) != len(cells) or len(first) != len(last):
        raise ValueError
    if (first != last).any() or (np.diff(first) == 0).any():
        raise ValueError
    return cells


def _first_problem(path: str | Path, width: int) -> InputError:
    """The error of the first bad line."""
    for number, line in read_lines(path, max_bytes=MAX_ROW_BYTES):
        cells = line.split()
        if not cells:
            continue
        if width not in _COLUMNS:
            expected = " or ".join(f"{count} columns {names}" for count, names in _COLUMNS.items())
            there = str(len(cells))
        elif len(cells) != width:
            expected, there = f"{width} columns {_COLUMNS[width]}", str(len(cells))
        elif width == 6 and not _is_finite(cells[4]):
            expected, there = "a finite score", repr(cells[4])
        elif width == 3 and not re.fullmatch(r"[+-]?\d{1,18}", cells[2]):
            expected, there = "an integer rank", repr(cells[2])
        else:
            continue
        return InputError.at(path, number, f"expected {expected}, found {there}; correct the line")
    # The rest: a byte that is blank here but not in Python, or the reverse.
    return InputError(f"{path} has control characters or odd blanks; expected spaces and tabs only")


def _is_finite(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _check_unique(run: Run, path: str | Path) -> None:
    for query_id, docs, _ in run.items():
        if len(set(docs)) == len(docs):
            continue
        # Line numbers were not kept: read the file again.
        seen: dict[str, int] = {}
        for number, line in read_lines(path, max_bytes=MAX_ROW_BYTES):
            cells = line.split()
            if not cells or cells[0] != query_id:
                continue
            doc_id = cells[2 if len(cells) == 6 else 1]
            if doc_id in seen:
                problem = f"expected each document once for query {query_id!r}, found {doc_id!r}"
                first = f"again (first at line {seen[doc_id]}); remove one"
                raise InputError.at(path, number, f"{problem} {first}")
            seen[doc_id] = number


def _check_ids(names: list[str]) -> None:
    if len(" ".join(names).split()) == len(names):  # fast: a run has millions
        return
    for name in names:
        if len(name.split()) != 1:
            raise InputError(
                f"{name!r} is empty or has a space, which a TREC run cannot contain; "
                "rename the query, the document or the tag"
            )


def _strictly_decreasing(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Descending scores as strictly decreasing 32-bit floats.

    >>> _strictly_decreasing(np.array([2.0, 1.0, 1.0, 1.0, 0.5])).astype(str).tolist()
    ['2.0', '1.0', '0.99999994', '0.9999999', '0.5']
    """
    with np.errstate(over="ignore"):  # the caller refuses infinite scores
        bits = scores.astype(np.float32).view(np.int32).astype(np.int64)
    # Consecutive floats are consecutive integers, also below zero.
    steps = np.where(bits < 0, _SIGN_BIT - bits, bits)
    rows = np.arange(len(steps))
    steps = np.minimum.accumulate(steps + rows) - rows
    bits = np.where(steps < 0, _SIGN_BIT - steps, steps)
    return bits.astype(np.int32).view(np.float32)


def trec_order(doc_ids: Sequence[str], scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sorts as trec_eval does: by descending score, then by descending document id.

    trec_eval compares scores in single precision.

    >>> trec_order(["a", "b", "c"], np.array([2.0, 2.0, 9.0])).tolist()
    [2, 1, 0]
    """
    with np.errstate(over="ignore"):  # too large scores become infinite
        descending = -scores.astype(np.float32)
    order = np.argsort(descending, kind="stable")
    ranked = descending[order]
    if (ranked[1:] == ranked[:-1]).any():
        by_id = np.array(sorted(range(len(doc_ids)), key=doc_ids.__getitem__, reverse=True))
        order = by_id[np.argsort(descending[by_id], kind="stable")]
    return order
