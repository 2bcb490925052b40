"""Other engines as first stages. Each finds documents that have any word of a query; nothing in a
query is an operator. The package of an engine is imported when its first stage is made.
"""

import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassrank.errors import GlassrankError, InputError, needs_extra
from glassrank.index.first_stage import ScoredIds

if TYPE_CHECKING:
    import tantivy

_WORD = re.compile(r"\w+")
_BY_LENGTH = 1
"""Normalization of ts_rank: divides by 1 + the logarithm of the document's length."""
_TANTIVY_OPERATORS = frozenset("AND OR NOT IN".split())


def _scored(rows: Sequence[Any]) -> ScoredIds:
    return ScoredIds([row[0] for row in rows], [row[1] for row in rows])


def _sort_rows(
    doc_ids: Sequence[Any], rows: Sequence[Any], engine: str, why: str = "any more; search again"
) -> list[dict[str, Any]]:
    """Texts, and titles if there are any, from rows (id, text, title), in the order of the ids."""
    docs = {row[0]: dict(zip(("text", "title"), row[1:], strict=False)) for row in rows}
    if missing := [doc_id for doc_id in doc_ids if doc_id not in docs]:
        raise InputError(f"{engine} has no document {missing[0]!r} {why}")
    return [docs[doc_id] for doc_id in doc_ids]


class Fts5:
    """SQLite's BM25, over an FTS5 table in a database file.

        create virtual table docs using fts5(id unindexed, title, text, tokenize='porter unicode61')

    FTS5 reads documents by `rowid`, the default, and scans the table for any other id. A plain
    table with an index ("external content") is as fast with ids of its own.
    """

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
        """`id`, `text` and `title` are columns; `content` is the table of the documents, if it is
        another one. Opens the file read-only."""
        if not Path(path).is_file():
            raise InputError(f"there is no database {path}")
        self._table = table
        self._id = id
        self._content = content or table
        self._columns = [text, *([title] if title else [])]
        uri = f"{Path(path).resolve().as_uri()}?mode=ro"
        # Pipelines search in their own threads; the lock serializes them.
        self._database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        self._lock = threading.Lock()

    def search(self, query: str, k: int) -> ScoredIds:
        """Quotes the query's words, so that none is an operator."""
        words = " OR ".join(f'"{word}"' for word in _WORD.findall(query))
        if not words:
            return ScoredIds([], [])
        table = _quote(self._table)
        rows = self._run(
            f"SELECT {_quote(self._id)}, -rank FROM {table} WHERE {table} MATCH ? "
            "ORDER BY rank LIMIT ?",
            (words, k),
        )
        return _scored(rows)

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles if there are any."""
        columns = ", ".join(map(_quote, [self._id, *self._columns]))
        places = ", ".join("?" * len(doc_ids))
        rows = self._run(
            f"SELECT {columns} FROM {_quote(self._content)} WHERE {_quote(self._id)} IN ({places})",
            tuple(doc_ids),
        )
        return _sort_rows(doc_ids, rows, "the database")

    def close(self) -> None:
        """Closes the database file."""
        self._database.close()

    def _run(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        with self._lock:
            return self._database.execute(statement, values).fetchall()


def _quote(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


class PostgresText:
    """PostgreSQL's ts_rank.

        create index on docs using gin (to_tsvector('english', text))

    makes it fast; or a column of type tsvector with an index, named as `vector`.
    """

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
        """`address` is a connection string; the table may be `schema.table`. The server ends a
        statement after `timeout_ms`, if that is given."""
        with needs_extra("engines"):
            import psycopg
            from psycopg.sql import SQL, Identifier, Literal

        self._connect = psycopg.connect
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
        """Uses only the words of the query, so that nothing is an operator."""
        words = " | ".join(_WORD.findall(query))
        if not words:
            return ScoredIds([], [])
        return _scored(self._run(self._search, (words, k)))

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles if there are any."""
        rows = self._run(self._fetch, (list(doc_ids),))
        return _sort_rows(doc_ids, rows, "PostgreSQL")

    def close(self) -> None:
        """Closes the connection; the next query opens another."""
        if self._connection is not None:
            self._connection.close()

    def _run(self, statement: Any, values: tuple[Any, ...]) -> list[Any]:
        """Runs statements one after the other; reconnects if the connection has ended."""
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect(self._address, autocommit=True, **self._options)
            rows: list[Any] = self._connection.execute(statement, values).fetchall()
            return rows


class Tantivy:
    """tantivy's BM25."""

    def __init__(
        self,
        index: "tantivy.Index | str | Path",
        fields: Sequence[str] = ("text",),
        *,
        id: str = "id",  # noqa: A002
        text: str = "text",
        title: str = "",
    ) -> None:
        """`index` is an open index or its folder, `fields` are searched. `id`, `text` and `title`
        must be stored fields, and ids indexed with the tokenizer `raw`."""
        with needs_extra("engines"):
            import tantivy

        self._index = index if isinstance(index, tantivy.Index) else tantivy.Index.open(str(index))
        self._term_set = tantivy.Query.term_set_query
        self._index.reload()  # so that `fetch` sees what was committed since
        self._fields = list(fields)
        self._id = id
        self._columns = [text, *([title] if title else [])]

    def search(self, query: str, k: int) -> ScoredIds:
        """Uses only the words of the query, so that nothing is an operator."""
        words = [word for word in _WORD.findall(query) if word not in _TANTIVY_OPERATORS]
        if not words:
            return ScoredIds([], [])
        self._index.reload()
        searcher = self._index.searcher()
        hits = searcher.search(self._index.parse_query(" ".join(words), self._fields), k).hits
        return ScoredIds(
            [searcher.doc(address).get_first(self._id) for _, address in hits],
            [score for score, _ in hits],
        )

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles if there are any."""
        searcher = self._index.searcher()
        query = self._term_set(self._index.schema, self._id, list(doc_ids))
        hits = searcher.search(query, max(1, len(doc_ids))).hits
        docs = [searcher.doc(address) for _, address in hits]
        rows = [
            (doc.get_first(self._id), *(doc.get_first(name) or "" for name in self._columns))
            for doc in docs
        ]
        why = f"in its field {self._id!r}; ids must be stored, and indexed with the tokenizer raw"
        return _sort_rows(doc_ids, rows, "the tantivy index", why)


class ElasticIndex:
    """The ranking of an Elasticsearch or OpenSearch server, through the client of either.

    Tested with both clients against a small server that responds as their documentation says, not
    against a real one.
    """

    def __init__(
        self,
        client: Any,
        index: str,
        fields: Sequence[str] = ("text",),
        *,
        text: str = "text",
        title: str = "",
    ) -> None:
        """`client` is an `elasticsearch.Elasticsearch` or an `opensearchpy.OpenSearch`; `fields`
        are searched, and may have weights (`title^2`)."""
        self._client = client
        self._index = index
        self._fields = list(fields)
        self._shown = {"text": text, **({"title": title} if title else {})}

    def search(self, query: str, k: int) -> ScoredIds:
        """A `multi_match` query; raises if some shards did not respond."""
        body = {
            "query": {"multi_match": {"query": query, "fields": self._fields}},
            "size": k,
            "_source": False,
        }
        response = self._client.search(index=self._index, body=body)
        if response.get("timed_out") or response.get("_shards", {}).get("failed"):
            raise GlassrankError(
                f"the server searched only some of the shards of {self._index}; see its health"
            )
        hits = response["hits"]["hits"]
        return ScoredIds([hit["_id"] for hit in hits], [hit["_score"] for hit in hits])

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles if there are any."""
        fields = list(self._shown.values())
        body = {"docs": [{"_id": doc_id, "_source": fields} for doc_id in doc_ids]}
        docs = self._client.mget(index=self._index, body=body)["docs"]
        return [self._doc(doc) for doc in docs]

    def _doc(self, doc: Mapping[str, Any]) -> dict[str, Any]:
        if not doc.get("found"):
            raise InputError(f"{self._index} has no document {doc['_id']!r} any more; search again")
        return {name: doc["_source"].get(field) or "" for name, field in self._shown.items()}
