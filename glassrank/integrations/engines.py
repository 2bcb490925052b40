"""Other people's engines as first stages: SQLite's full text search, PostgreSQL's, tantivy, and
Elasticsearch or OpenSearch.

Each finds documents that have any word of a query, and nothing in a query is an operator. A package
that an engine needs is imported when its first stage is made.
"""

import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassrank.errors import GlassrankError, InputError
from glassrank.index.first_stage import ScoredIds
from glassrank.integrations import extra

if TYPE_CHECKING:
    import tantivy

_WORD = re.compile(r"\w+")
_BY_LENGTH = 1
"""As ts_rank counts it: divided by 1 + the logarithm of the document's length."""
_TANTIVY_OPERATORS = frozenset("AND OR NOT IN".split())


def _scored(rows: Sequence[Any]) -> ScoredIds:
    return ScoredIds([row[0] for row in rows], [row[1] for row in rows])


def _in_order(doc_ids: Sequence[Any], rows: Sequence[Any], engine: str) -> list[dict[str, Any]]:
    """Rows of an id, a text and perhaps a title, as the ids stand."""
    docs = {row[0]: dict(zip(("text", "title"), row[1:], strict=False)) for row in rows}
    if lacking := [doc_id for doc_id in doc_ids if doc_id not in docs]:
        raise InputError(f"{engine} has no document {lacking[0]!r} any more; search again")
    return [docs[doc_id] for doc_id in doc_ids]


class Fts5:
    """Documents that have any word of the query, by the BM25 of a table of FTS5 in a database file.

        create virtual table docs using fts5(id unindexed, title, text, tokenize='porter unicode61')

    FTS5 looks up words, and nothing else: to read documents by a column it goes through all of
    them. By `rowid`, which is the default, it need not; a table of plain columns with an index, of
    which the FTS5 table is the index ("external content"), is as fast with ids of its own.
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
        return _scored(rows)

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles where there are some."""
        columns = ", ".join(map(_name, [self._id, *self._columns]))
        places = ", ".join("?" * len(doc_ids))
        rows = self._run(
            f"SELECT {columns} FROM {_name(self._content)} WHERE {_name(self._id)} IN ({places})",
            tuple(doc_ids),
        )
        return _in_order(doc_ids, rows, "the database")

    def close(self) -> None:
        """The database file may be removed from here on."""
        self._database.close()

    def _run(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        with self._lock:
            return self._database.execute(statement, values).fetchall()


def _name(name: str) -> str:
    """Quoted, as SQL has it, so that it is a name whatever it holds."""
    return '"{}"'.format(name.replace('"', '""'))


class PostgresText:
    """Documents that have any word of the query, by PostgreSQL's ts_rank.

        create index on docs using gin (to_tsvector('english', text))

    is what makes it fast; or a column of type tsvector that has an index, named as `vector`.
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
        """`address` is a connection string of PostgreSQL's; the table may be `schema.table`. The
        server gives up a statement after `timeout_ms`; without it, one that nobody waits for any
        more goes on."""
        with extra("engines"):
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
        """Of the query the words are taken, so that nothing in it is an operator."""
        words = " | ".join(_WORD.findall(query))
        if not words:
            return ScoredIds([], [])
        return _scored(self._run(self._search, (words, k)))

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles where there are some."""
        rows = self._run(self._fetch, (list(doc_ids),))
        return _in_order(doc_ids, rows, "PostgreSQL")

    def close(self) -> None:
        """Ends the connection; the next query would open another."""
        if self._connection is not None:
            self._connection.close()

    def _run(self, statement: Any, values: tuple[Any, ...]) -> list[Any]:
        """One after the other, on one connection; on a new one where that has ended."""
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect(self._address, autocommit=True, **self._options)
            rows: list[Any] = self._connection.execute(statement, values).fetchall()
            return rows


class Tantivy:
    """Documents that have any word of the query, by tantivy's BM25."""

    def __init__(
        self,
        index: "tantivy.Index | str | Path",
        fields: Sequence[str] = ("text",),
        *,
        id: str = "id",  # noqa: A002
        text: str = "text",
        title: str = "",
    ) -> None:
        """An open index, or its folder. `fields` are looked at for the words of the query; `id`,
        `text` and `title` must be stored fields, and ids found as they are (the tokenizer `raw`).
        It is searched as it was committed last, when it is asked."""
        with extra("engines"):
            import tantivy

        self._index = index if isinstance(index, tantivy.Index) else tantivy.Index.open(str(index))
        self._term_set = tantivy.Query.term_set_query
        self._index.reload()  # what was committed since it was opened can be fetched at once
        self._fields = list(fields)
        self._id = id
        self._shown = {"text": text, **({"title": title} if title else {})}

    def search(self, query: str, k: int) -> ScoredIds:
        """Of the query the words are taken, so that nothing in it is an operator."""
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
        """Texts, and titles where there are some."""
        searcher = self._index.searcher()
        query = self._term_set(self._index.schema, self._id, list(doc_ids))
        docs = {}
        for _, address in searcher.search(query, max(1, len(doc_ids))).hits:
            doc = searcher.doc(address)
            docs[doc.get_first(self._id)] = {
                name: doc.get_first(field) or "" for name, field in self._shown.items()
            }
        if lacking := [doc_id for doc_id in doc_ids if doc_id not in docs]:
            raise InputError(
                f"the index of tantivy's has no document {lacking[0]!r} by its field {self._id!r}; "
                "ids must be stored, and indexed by the tokenizer raw"
            )
        return [docs[doc_id] for doc_id in doc_ids]


class ElasticIndex:
    """Documents that have any word of the query, as a server of Elasticsearch or OpenSearch ranks
    them, through the client of either.

    Tested with both clients against a server of ours that answers in the form that theirs document;
    no server of theirs was at hand.
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
        """`client` is an `elasticsearch.Elasticsearch` or an `opensearchpy.OpenSearch`, which knows
        addresses, keys and how long it waits. `fields` are looked at for the query, and may be
        weighted (`title^2`)."""
        self._client = client
        self._index = index
        self._fields = list(fields)
        self._shown = {"text": text, **({"title": title} if title else {})}

    def search(self, query: str, k: int) -> ScoredIds:
        """By a `multi_match`; an answer that lacks some shards is none."""
        body = {
            "query": {"multi_match": {"query": query, "fields": self._fields}},
            "size": k,
            "_source": False,
        }
        answer = self._client.search(index=self._index, body=body)
        if answer.get("timed_out") or answer.get("_shards", {}).get("failed"):
            raise GlassrankError(
                f"the server searched only some of the shards of {self._index}; see its health"
            )
        hits = answer["hits"]["hits"]
        return ScoredIds([hit["_id"] for hit in hits], [hit["_score"] for hit in hits])

    def fetch(self, doc_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Texts, and titles where there are some."""
        fields = list(self._shown.values())
        body = {"docs": [{"_id": doc_id, "_source": fields} for doc_id in doc_ids]}
        docs = self._client.mget(index=self._index, body=body)["docs"]
        return [self._doc(doc) for doc in docs]

    def _doc(self, doc: Mapping[str, Any]) -> dict[str, Any]:
        if not doc.get("found"):
            raise InputError(f"{self._index} has no document {doc['_id']!r} any more; search again")
        return {name: doc["_source"].get(field) or "" for name, field in self._shown.items()}
