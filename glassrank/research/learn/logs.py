"""Logs of queries and clicks, from `glassrank serve --log` or from another front end.

A line is a query in plain text; an object with `query`, `shown` and `clicked` ids; or an event of
our own log (`serve/query_log.py`), where clicks follow their search. A log is not trusted: what
cannot be read, or names what is not there, is counted and left out.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassrank.errors import InputError
from glassrank.serve.query_log import list_files
from glassrank.storage.files import MAX_ROW_BYTES, open_bytes

MOST_QUERIES = 1_000_000
_MOST_CHARACTERS = 2_000


@dataclass
class LoggedQuery:
    """A query, what was shown for it, and what was clicked; without clicks both may be empty."""

    text: str
    shown: list[str] = field(default_factory=list)
    clicked: set[str] = field(default_factory=set)


@dataclass
class Log:
    """The queries of a log, and how many lines were left out, by the reason."""

    queries: list[LoggedQuery]
    skipped: Counter[str]


def read_log(path: Path) -> Log:
    """Reads a log and its older, rotated files."""
    files = [file for file in list_files(path) if file.exists()] or [path]
    queries: list[LoggedQuery] = []
    by_id: dict[str, LoggedQuery] = {}
    skipped: Counter[str] = Counter()
    for file in reversed(files):
        for line in _read_lines(file, skipped):
            reason = _read_event(line, queries, by_id)
            if reason:
                skipped[reason] += 1
            if len(queries) > MOST_QUERIES:
                raise InputError(
                    f"{path} has more than {MOST_QUERIES:,} queries; give a part of it"
                )
    if not queries:
        raise InputError(f"{path} has no query that can be read; expected one on each line")
    return Log(queries, skipped)


def _read_lines(path: Path, skipped: Counter[str]) -> Iterator[bytes]:
    """Lines of a usual length; a longer one is passed over without keeping it in memory."""
    is_long = False
    with open_bytes(path, regular=True) as file:
        while line := file.readline(MAX_ROW_BYTES):
            if not line.endswith(b"\n") and len(line) == MAX_ROW_BYTES:
                skipped["too long"] += not is_long
                is_long = True
            elif is_long:  # its end
                is_long = False
            elif line.strip():
                yield line


def _read_event(line: bytes, queries: list[LoggedQuery], by_id: dict[str, LoggedQuery]) -> str:
    """Adds what a line says; returns why it is left out, or nothing."""
    try:
        text = line.decode("utf-8").strip()
        event: Any = json.loads(text) if text.startswith("{") else {"query": text}
    except (ValueError, RecursionError):
        return "not readable"
    query_id, action = event.get("query_id"), event.get("action", "search")
    if action in ("click", "up", "down"):
        search = by_id.get(query_id) if isinstance(query_id, str) else None
        doc_id = event.get("doc_id")
        if search is None or doc_id not in search.shown:
            return "a click on what was not shown"
        if action == "down":
            search.clicked.discard(doc_id)
        else:
            search.clicked.add(doc_id)
        return ""
    query, shown, clicked = (event.get(name, []) for name in ("query", "shown", "clicked"))
    if not isinstance(query, str) or not 0 < len(query.strip()) <= _MOST_CHARACTERS:
        return "without a query"
    if not all(
        isinstance(ids, list) and all(isinstance(i, str) for i in ids) for ids in (shown, clicked)
    ):
        return "not readable"
    logged = LoggedQuery(query, list(dict.fromkeys(shown)), set(clicked) & set(shown))
    queries.append(logged)
    if isinstance(query_id, str):
        by_id[query_id] = logged
    return ""
