"""The shape of the project: imports go one way, and the README's tree is the real one."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "glassrank"

# Top to bottom: code imports from its own package or from those above it, never below.
ORDER = (
    *("types", "errors", "deadline", "settings", "folders", "checked", "whole_folder", "sealed"),
    *("files", "arrays", "ragged", "modules"),
    *("corpus", "text", "retrieve", "measure", "nn", "models", "store", "rank"),
    *("train", "explain", "serve", "cli"),
)
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def layer(dotted: str) -> str:
    """`retrieve` for `glassrank.retrieve.index`."""
    return dotted.split(".")[1]


def imports(path: Path) -> Iterator[str]:
    """What a file imports of ours, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            assert node.module is not None
            names = (
                [f"glassrank.{alias.name}" for alias in node.names]
                if node.module == "glassrank"
                else [node.module]
            )
        yield from (name for name in names if name.startswith("glassrank."))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for name in imports(path):
        if layer(name) == "__version__":
            continue
        assert ORDER.index(layer(name)) <= ORDER.index(own), f"{own} must not import {name}"


def test_the_tree_in_the_readme_names_every_file_and_no_other() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    tree = readme.split("<!-- tree -->")[1]
    named = set(re.findall(r"^\s*([\w./]+\.py) ", tree, re.MULTILINE))
    real = {path.relative_to(PACKAGE).as_posix() for path in MODULES if path.name != "__init__.py"}
    assert named == real


def test_every_file_says_what_it_is_for() -> None:
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path


def test_only_its_command_knows_the_benchmarks() -> None:
    know = [path for path in MODULES if "glassrank_bench" in path.read_text("utf-8")]
    assert know == [PACKAGE / "cli" / "bench.py"]


@pytest.mark.parametrize("package", ["models", "explain"])
def test_no_file_imports_another_in_a_circle(package: str) -> None:
    """Imports inside functions count: they only hide a circle."""
    graph: dict[str, set[str]] = {}
    for path in (PACKAGE / package).glob("*.py"):
        if path.name != "__init__.py":
            graph[f"glassrank.{package}.{path.stem}"] = set(imports(path))
    inside = {name: {other for other in found if other in graph} for name, found in graph.items()}
    TopologicalSorter(inside).prepare()  # a CycleError names the circle


OVERRIDDEN = frozenset(
    "encode_query encode_doc query_words doc_words interact readouts rankers forward start "
    "mix_first_stage".split()
)
"""Of the models' contract, which says what they do."""


@pytest.mark.parametrize("package", ["models", "explain"])
def test_every_public_name_says_what_it_is(package: str) -> None:
    for path in (PACKAGE / package).glob("*.py"):
        nodes: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
        for node in nodes:
            for child in getattr(node, "body", []):
                if not isinstance(child, ast.ClassDef | ast.FunctionDef):
                    continue
                if isinstance(child, ast.ClassDef):
                    nodes.append(child)
                if not child.name.startswith("_") and child.name not in OVERRIDDEN:
                    assert ast.get_docstring(child), f"{path}: {child.name}"
