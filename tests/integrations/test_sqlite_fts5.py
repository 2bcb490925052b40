"""SQLite's full text search: the real thing, in a file."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from glassrank.errors import GlassrankError, InputError
from glassrank.index.first_stage import retrieve
from glassrank.integrations.engines import Fts5
from glassrank.rerank import TextPipeline

LONG_MS = 60_000.0


@pytest.fixture
def database(tmp_path: Path, texts: dict[str, str]) -> Path:
    path = tmp_path / "my docs.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute('CREATE TABLE pages ("the id" TEXT PRIMARY KEY, name, body)')
        rows = [(doc_id, f"About {doc_id}", text) for doc_id, text in texts.items()]
        database.executemany("INSERT INTO pages VALUES (?, ?, ?)", rows)
        database.execute(
            'CREATE VIRTUAL TABLE words USING fts5("the id" UNINDEXED, name, body, content=pages)'
        )
        database.execute("INSERT INTO words(words) VALUES ('rebuild')")
        database.execute("CREATE VIRTUAL TABLE docs USING fts5(text)")
        database.executemany("INSERT INTO docs VALUES (?)", [(text,) for text in texts.values()])
    return path


def test_the_best_by_its_own_ranking(database: Path, query: str, texts: dict[str, str]) -> None:
    with closing(Fts5(database, "docs")) as stage:
        ids, scores = stage.search(query, 3)
        assert list(texts)[ids[0] - 1] == "csv" and scores == sorted(scores, reverse=True)
        assert stage.fetch(ids[::-1])[-1] == {"text": texts["csv"]}
    with closing(sqlite3.connect(database)) as own:
        rows = own.execute(
            "SELECT rowid, -bm25(docs) FROM docs WHERE docs MATCH ? ORDER BY bm25(docs) LIMIT 3",
            ["how OR do OR i OR read OR a OR csv OR file"],
        )
        assert [(row[0], pytest.approx(row[1])) for row in rows] == list(
            zip(ids, scores, strict=True)
        )


def test_ids_and_titles_of_another_table(database: Path, query: str, best: str) -> None:
    stage = Fts5(database, "words", id="the id", text="body", title="name", content="pages")
    with closing(stage):
        ranking = TextPipeline(stage, "fast", budget_ms=LONG_MS)(query, k=3)
        assert ranking[0].doc_id == best and ranking[0].title == "About csv"
        assert ranking.depth > 3 and not ranking.cut_short


@pytest.mark.parametrize("text", ['"', "NOT", "read* AND (", "a:b ^c", "csv NEAR file -x", "'; --"])
def test_a_query_is_words_and_no_expression(database: Path, text: str) -> None:
    with closing(Fts5(database, "docs")) as stage:
        retrieve(stage, text, 5)  # an error of syntax would be raised


def test_a_query_without_words_finds_nothing(database: Path) -> None:
    with closing(Fts5(database, "docs")) as stage:
        assert retrieve(stage, "?!", 5) == ([], [])


def test_what_is_not_there(database: Path, tmp_path: Path) -> None:
    with closing(Fts5(database, "docs")) as stage, pytest.raises(InputError, match="document 99"):
        stage.fetch([1, 99])
    with pytest.raises(InputError, match="there is no database"):
        Fts5(tmp_path / "none.db", "docs")
    with (
        closing(Fts5(database, "others")) as stage,
        pytest.raises(GlassrankError, match=r"the first stage Fts5 failed .*no such table: others"),
    ):
        retrieve(stage, "csv", 5)
