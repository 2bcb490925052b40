"""SQLite's full text search as a first stage: a table of FTS5 in a database file.

    create virtual table docs using fts5(id unindexed, title, text, tokenize='porter unicode61')

FTS5 looks up words, and nothing else: to read documents by a column it goes through all of them.
By `rowid`, which is the default, it need not; a table of plain columns with an index, of which the
FTS5 table is the index ("external content"), is as fast with ids of its own.
"""

import re
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassrank.errors import InputError
from glassrank.retrieve.first_stage import ScoredIds

_WORD = re.compile(r"\w+")


class Fts5:
    """Documents that have any word of the query, by FTS5's BM25."""

    def __init__(
        self,
        path: str | Path,
        table: str,
        *,
        id: str = "rowid",  # noqa: A002
        text: str = "text",
        title: str = "",
        content: str = "",
    ) -> None:
        """`id`, `text` and `title` are columns; `content` is the table that has the documents,
        where that is another one. The file is opened for reading alone."""
        if not Path(path).is_file():
            raise InputError(f"there is no database {path}")
        self._table = table
        self._id = id
        self._content = content or table
        self._columns = [text, *([title] if title else [])]
        uri = f"{Path(path).resolve().as_uri()}?mode=ro"
        # Pipelines ask in threads of their own; the lock lets them in one after the other.
        self._database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        self._lock = threading.Lock()

    def search(self, query: str, k: int) -> ScoredIds:
        """The words of the query are quoted, so that none of them is an operator."""
        words = " OR ".join(f'"{word}"' for word in _WORD.findall(query))
        if not words:
            return ScoredIds([], [])
        table = _name(self._table)
        rows = self._run(
            f"SELECT {_name(self._id)}, -rank FROM {table} WHERE {table} MATCH ? "
            "ORDER BY rank LIMIT ?",
            (words, k),
        )
        return ScoredIds([row[0] for row in rows], [row[1] for row in rows])

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles where there are some."""
        columns = ", ".join(map(_name, [self._id, *self._columns]))
        places = ", ".join("?" * len(doc_ids))
        rows = self._run(
            f"SELECT {columns} FROM {_name(self._content)} WHERE {_name(self._id)} IN ({places})",
            tuple(doc_ids),
        )
        docs = {row[0]: dict(zip(("text", "title"), row[1:], strict=False)) for row in rows}
        if lacking := [doc_id for doc_id in doc_ids if doc_id not in docs]:
            raise InputError(f"the database has no document {lacking[0]!r} any more; search again")
        return [docs[doc_id] for doc_id in doc_ids]

    def close(self) -> None:
        """The database file may be removed from here on."""
        self._database.close()

    def _run(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        with self._lock:
            return self._database.execute(statement, values).fetchall()


def _name(name: str) -> str:
    """Quoted, as SQL has it, so that it is a name whatever it holds."""
    return '"{}"'.format(name.replace('"', '""'))
