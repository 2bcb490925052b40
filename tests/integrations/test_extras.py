"""Somebody else's packages: imported by their adapter alone, and named where they are missing."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from glassrank import integrations
from glassrank.errors import InputError

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ADAPTERS = {
    "faiss": ("vector_index", "faiss"),
    "haystack": ("haystack", "haystack"),
    "langchain": ("langchain", "langchain_core"),
    "llamaindex": ("llama_index", "llama_index"),
    "postgres": ("engines", "psycopg"),
    "pyterrier": ("pyterrier", "pandas"),
    "tantivy": ("engines", "tantivy"),
}
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


@pytest.mark.parametrize("extra", ["langchain", "postgres"])
def test_a_package_that_is_missing_is_named_with_its_extra(extra: str) -> None:
    sentence = said(MISSING, *ADAPTERS[extra])
    assert sentence.startswith(f"this needs the package {ADAPTERS[extra][1]}")
    assert sentence.endswith(f"; install it: pip install 'glassrank[{extra}]'\n")


def test_a_package_that_does_not_name_what_it_misses_is_quoted() -> None:
    with (
        pytest.raises(InputError, match=r"a package that is missing \(no uuid_utils\); install it"),
        integrations.extra("langchain"),
    ):
        raise ImportError("no uuid_utils")


def test_nothing_else_imports_them() -> None:
    modules = set(said(IMPORTED).split())
    assert "glassrank.rerank" in modules
    others = {package for _, package in ADAPTERS.values()} | {"elasticsearch", "opensearchpy"}
    assert not modules & others


def test_each_adapter_has_an_extra_and_one_has_them_all() -> None:
    extras = PROJECT["optional-dependencies"]
    (all_of_them,) = (Requirement(need) for need in extras["adapters"])
    assert all_of_them.name == "glassrank"
    assert all_of_them.extras == {*ADAPTERS, "elasticsearch", "opensearch"}
    assert all_of_them.extras <= set(extras)
    for extra, (module, _) in ADAPTERS.items():
        source = (ROOT / "glassrank" / "adapters" / f"{module}.py").read_text("utf-8")
        assert f'with extra("{extra}"):' in source
