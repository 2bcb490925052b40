"""The blocks of docs/guides/integrations.md, run as they stand."""

import re
from pathlib import Path
from typing import Any

import pytest
from elastic_server import elastic_server

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "integrations.md").read_text("utf-8")
SECTIONS = re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]
EXAMPLES = {
    section.partition("\n")[0]: example
    for section in SECTIONS
    for example in re.findall("```python\n(.*?)```", section, re.DOTALL)
}
NEEDS = {
    "tantivy": ("tantivy",),
    "PostgreSQL": ("psycopg",),
    "Elasticsearch and OpenSearch": ("elasticsearch",),
    "Vectors, and hybrids": ("faiss",),
    "LangChain": ("langchain_core",),
    "LlamaIndex": ("llama_index.core",),
    "Haystack": ("haystack",),
    "PyTerrier": ("pyterrier", "pandas"),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.long
def test_an_example_runs_and_is_short(
    name: str,
    texts: dict[str, str],
    best: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"texts": texts}
    if "address" in EXAMPLES[name]:
        names["address"] = request.getfixturevalue("postgres")
    with elastic_server(texts) as names["url"]:
        exec(EXAMPLES[name], names)
    assert texts[best] in _first(names)
    assert len([line for line in EXAMPLES[name].splitlines() if line.strip()]) <= 10


def _first(names: dict[str, Any]) -> str:
    """The text of what the example has found best, as its package has it."""
    ranking = names["ranking"]
    best = ranking.iloc[0].to_dict() if hasattr(ranking, "iloc") else ranking[0]
    if isinstance(best, dict):
        return str(best["text"])
    for name in ("text", "page_content", "content"):
        if hasattr(best, name):
            return str(getattr(best, name))
    raise AssertionError(best)


def test_every_example_is_known() -> None:
    assert len(EXAMPLES) == len(re.findall("```python", PAGE))
    assert set(NEEDS) <= set(EXAMPLES)
