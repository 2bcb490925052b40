"""PostgreSQL's full text search as a first stage.

    create index on docs using gin (to_tsvector('english', text))

is what makes it fast; or a column of type tsvector that has an index, named as `vector`.
"""

import re
import threading
from collections.abc import Sequence
from typing import Any

from glassrank.adapters import extra
from glassrank.errors import InputError
from glassrank.retrieve.first_stage import ScoredIds

with extra("postgres"):
    import psycopg
    from psycopg.sql import SQL, Identifier, Literal

_WORD = re.compile(r"\w+")
_BY_LENGTH = 1
"""As ts_rank counts it: divided by 1 + the logarithm of the document's length."""


class PostgresText:
    """Documents that have any word of the query, by ts_rank."""

    def __init__(
        self,
        address: str,
        table: str,
        *,
        id: str = "id",  # noqa: A002
        text: str = "text",
        title: str = "",
        vector: str = "",
        config: str = "english",
        timeout_ms: int | None = None,
    ) -> None:
        """`address` is a connection string of PostgreSQL's; the table may be `schema.table`. The
        server gives up a statement after `timeout_ms`; without it, one that nobody waits for any
        more goes on."""
        self._address = address
        self._options = (
            {} if timeout_ms is None else {"options": f"-c statement_timeout={timeout_ms}"}
        )
        self._lock = threading.Lock()
        self._connection: Any = None
        table_name, key = Identifier(*table.split(".")), Identifier(id)
        words = (
            Identifier(vector)
            if vector
            else SQL("to_tsvector({}, {})").format(Literal(config), Identifier(text))
        )
        self._search = SQL(
            "SELECT {key}, ts_rank({words}, query, {by_length}) AS score "
            "FROM {table}, to_tsquery({config}, %s) AS query WHERE {words} @@ query "
            "ORDER BY score DESC, {key} LIMIT %s"
        ).format(
            key=key,
            words=words,
            by_length=Literal(_BY_LENGTH),
            table=table_name,
            config=Literal(config),
        )
        columns = [key, Identifier(text), *([Identifier(title)] if title else [])]
        self._fetch = SQL("SELECT {} FROM {} WHERE {} = ANY(%s)").format(
            SQL(", ").join(columns), table_name, key
        )

    def search(self, query: str, k: int) -> ScoredIds:
        """Of the query the words are taken, so that nothing in it is an operator."""
        words = " | ".join(_WORD.findall(query))
        if not words:
            return ScoredIds([], [])
        rows = self._run(self._search, (words, k))
        return ScoredIds([row[0] for row in rows], [row[1] for row in rows])

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles where there are some."""
        rows = self._run(self._fetch, (list(doc_ids),))
        docs = {row[0]: dict(zip(("text", "title"), row[1:], strict=False)) for row in rows}
        if lacking := [doc_id for doc_id in doc_ids if doc_id not in docs]:
            raise InputError(f"PostgreSQL has no document {lacking[0]!r} any more; search again")
        return [docs[doc_id] for doc_id in doc_ids]

    def close(self) -> None:
        """Ends the connection; the next query would open another."""
        if self._connection is not None:
            self._connection.close()

    def _run(self, statement: Any, values: tuple[Any, ...]) -> list[Any]:
        """One after the other, on one connection; on a new one where that has ended."""
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._address, autocommit=True, **self._options)
            rows: list[Any] = self._connection.execute(statement, values).fetchall()
            return rows
