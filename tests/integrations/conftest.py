"""What adapters are tried with: ten documents, of which one answers the question."""

import os
from collections.abc import Iterator

import pytest
from postgres_server import postgres_server, programs

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # it reports on pipelines that run, unless told

QUERY = "how do I read a csv file?"
BEST = "csv"


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    return {
        "json": "The json module reads and writes JSON files.",
        "csv": "To read a csv file, open it and give it to csv.reader, which yields its rows.",
        "path": "A file is removed by the method unlink of its path.",
        "sql": "sqlite3 keeps tables in one file, which SQL reads.",
        "dog": "Dogs bark at night.",
        "cat": "The cat sat on the mat.",
        "time": "time.sleep waits for some seconds.",
        "zip": "A zip file is read by the module zipfile.",
        "xml": "ElementTree reads XML, element by element.",
        "sea": "The sea is cold in winter, and the wind is strong.",
    }


@pytest.fixture
def query() -> str:
    return QUERY


@pytest.fixture
def best() -> str:
    """The id of the document that answers it."""
    return BEST


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server that was started for the tests."""
    pytest.importorskip("psycopg", reason="the package psycopg is not installed")
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres_server(folder) as address:
        yield address
