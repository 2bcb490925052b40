"""Somebody else's packages: imported by their adapter alone, and named where they are missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from glassrank.errors import InputError, needs_extra

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "faiss": "vector_index",
    "haystack": "haystack",
    "langchain_core": "langchain",
    "llama_index": "llama_index",
    "pandas": "pyterrier",
    "psycopg": "engines",
    "tantivy": "engines",
}
"""Other people's packages, and which of our modules imports each."""
MISSING = """
import sys
sys.modules[sys.argv[2]] = None  # as if it were not installed
import glassrank as gr
try:
    adapter = __import__(f"glassrank.integrations.{sys.argv[1]}", fromlist=["*"])
    adapter.PostgresText("", "docs")  # an engine imports its package when it is made
except gr.InputError as error:
    print(error)
"""
IMPORTED = """
import sys
import glassrank as gr
for name in gr.__all__:
    getattr(gr, name)
import glassrank.integrations.cross_encoder, glassrank.integrations.engines
print(*sys.modules)
"""


def said(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize(
    ("package", "extra"), [("langchain_core", "integrations"), ("psycopg", "engines")]
)
def test_a_package_that_is_missing_is_named_with_its_extra(package: str, extra: str) -> None:
    sentence = said(MISSING, PACKAGES[package], package)
    assert package in sentence
    assert f"pip install 'glassrank[{extra}]'" in sentence


def test_a_package_that_does_not_name_what_it_misses_is_quoted() -> None:
    with (
        pytest.raises(InputError, match=r"a package that is missing \(no uuid_utils\); install it"),
        needs_extra("integrations"),
    ):
        raise ImportError("no uuid_utils")


def test_nothing_else_imports_them() -> None:
    modules = set(said(IMPORTED).split())
    assert "glassrank.rerank" in modules
    assert not modules & {*PACKAGES, "elasticsearch", "opensearchpy"}
