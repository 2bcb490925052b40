"""PostgreSQL: a real server, started for the tests (`postgres_server.py`)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import glassrank as gr
from glassrank.errors import GlassrankError, InputError
from glassrank.index.first_stage import retrieve

psycopg = pytest.importorskip("psycopg", reason="the package psycopg is not installed")
from glassrank.integrations.engines import PostgresText  # noqa: E402


@pytest.fixture
def table(postgres: str, texts: dict[str, str]) -> Iterator[str]:
    """The name of a filled one."""
    with closing(psycopg.connect(postgres, autocommit=True)) as connection:
        connection.execute('DROP TABLE IF EXISTS "my docs"')
        connection.execute('CREATE TABLE "my docs" (id text PRIMARY KEY, name text, text text)')
        connection.execute("CREATE INDEX ON \"my docs\" USING gin (to_tsvector('english', text))")
        with connection.cursor() as cursor:
            rows = [(doc_id, f"About {doc_id}", text) for doc_id, text in texts.items()]
            cursor.executemany('INSERT INTO "my docs" VALUES (%s, %s, %s)', rows)
    yield "my docs"


def test_the_best_by_its_own_ranking(postgres: str, table: str, query: str, best: str) -> None:
    with closing(PostgresText(postgres, table)) as stage:
        ids, scores = stage.search(query, 4)
    with closing(psycopg.connect(postgres)) as connection:
        rows = connection.execute(
            "SELECT id, ts_rank(to_tsvector('english', text), q, 1) AS score "
            "FROM \"my docs\", to_tsquery('english', 'read | csv | file') AS q "
            "WHERE to_tsvector('english', text) @@ q ORDER BY score DESC, id LIMIT 4"
        ).fetchall()
    assert ids[0] == best and list(zip(ids, scores, strict=True)) == rows


def test_the_index_is_used(postgres: str, table: str) -> None:
    with closing(PostgresText(postgres, table)) as stage, closing(psycopg.connect(postgres)) as own:
        own.execute("SET enable_seqscan = off")
        plan = own.execute("EXPLAIN " + stage._search.as_string(own), ("csv", 3)).fetchall()
    assert "Bitmap Index Scan" in str(plan)


def test_a_pipeline_within_a_budget(
    postgres: str, table: str, texts: dict[str, str], query: str, best: str
) -> None:
    with closing(PostgresText(postgres, table, title="name", timeout_ms=60_000)) as stage:
        ranking = gr.TextPipeline(stage, "fast", budget_ms=60_000)(query, k=3)
    assert ranking[0].doc_id == best and ranking[0].title == "About csv"
    assert ranking[0].text == texts[best] and ranking.depth > 3


@pytest.mark.parametrize("text", ["'", "NOT & |", "csv:* <->", "a!(", "\\", "a_b", "%s", "the of"])
def test_a_query_is_words_and_no_expression(postgres: str, table: str, text: str) -> None:
    with closing(PostgresText(postgres, table)) as stage:
        retrieve(stage, text, 5)  # an error of syntax would be raised


def test_a_vector_of_its_own(postgres: str, table: str) -> None:
    with closing(psycopg.connect(postgres, autocommit=True)) as connection:
        connection.execute(
            'ALTER TABLE "my docs" ADD words tsvector '
            "GENERATED ALWAYS AS (to_tsvector('simple', name)) STORED"
        )
    with closing(
        PostgresText(postgres, f"public.{table}", vector="words", config="simple")
    ) as stage:
        assert stage.search("about zip?", 1).ids == ["zip"]


def test_statements_are_given_up(postgres: str, table: str) -> None:
    with closing(PostgresText(postgres, table, timeout_ms=1)) as stage:
        stage._search = psycopg.sql.SQL("SELECT pg_sleep(60), %s, %s")
        with pytest.raises(GlassrankError, match=r"PostgresText failed .*statement timeout"):
            retrieve(stage, "csv", 3)


def test_a_connection_that_was_cut_is_a_sentence_and_then_another(
    postgres: str, table: str
) -> None:
    with closing(PostgresText(postgres, table)) as stage:
        assert stage.search("csv", 1).ids == ["csv"]
        with closing(psycopg.connect(postgres, autocommit=True)) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        with pytest.raises(GlassrankError, match="the first stage PostgresText failed"):
            retrieve(stage, "csv", 1)
        assert stage.search("csv", 1).ids == ["csv"]


def test_what_is_not_there(postgres: str, table: str, tmp_path: Path) -> None:
    with closing(PostgresText(postgres, table)) as stage, pytest.raises(InputError, match="'none'"):
        stage.fetch(["csv", "none"])
    with pytest.raises(GlassrankError, match="the first stage PostgresText failed"):
        retrieve(PostgresText(f"host={tmp_path} user=tester", table), "csv", 3)
    with (
        closing(PostgresText(postgres, "others")) as stage,
        pytest.raises(GlassrankError, match=r'relation "others" does not exist'),
    ):
        retrieve(stage, "csv", 3)
