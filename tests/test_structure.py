"""The shape of the project: imports go one way, and the README's tree is the real one."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "glassrank"

# Top to bottom: code imports from its own package or from those above it, never below.
ORDER = (
    *("types", "errors", "tracing", "deadline", "settings", "storage", "backends", "corpus"),
    *("text", "index", "models", "embeddings", "rerank", "integrations", "explanations"),
    *("cluster", "serve", "research", "cli", "__main__"),
)
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def layer(name: str) -> str:
    """`index` for `glassrank.index.index`."""
    return name.split(".")[1]


def dotted(path: Path) -> str:
    """`glassrank.index.index` for its file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(path: Path, types: bool = False) -> Iterator[str]:
    """What a file imports of ours, inside functions too; and for its types."""
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
            node.body = []  # what is left of a block that never runs
    for node in ast.walk(tree):
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
    for name in imports(path, types=True):
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
        assert ast.get_docstring(parsed(path)), path


def test_only_its_command_knows_the_benchmarks() -> None:
    know = [path for path in MODULES if "glassrank_bench" in path.read_text("utf-8")]
    assert know == [PACKAGE / "cli" / "bench.py"]


def test_no_file_imports_another_in_a_circle() -> None:
    """Imports inside functions count: they only hide a circle. Those for types alone do not."""
    graph = {dotted(path): set(imports(path)) for path in MODULES if path.name != "__init__.py"}
    inside = {name: {other for other in known if other in graph} for name, known in graph.items()}
    TopologicalSorter(inside).prepare()  # a CycleError names the circle


SAME_IDEA = frozenset(
    # A command and what it calls; the plain maths and its fast forms; the manifest and the writer
    # of an index and of a store.
    "adapt budget clusters encode evaluate experiment index prepare search select tune "
    "attention contextual few_rows kernels soft_counts transformer "
    "manifest writer".split()
)


def test_one_name_is_one_idea() -> None:
    names = Counter(path.stem for path in MODULES if not path.stem.startswith("__"))
    assert {name for name, count in names.items() if count > 1} <= SAME_IDEA


SAME_THING = frozenset(
    # The plain maths and its fast forms; a change, and the form that asks for it; what an index and
    # what a store is made of.
    "Change Layer Manifest _Layer _SumNorm".split()
)


def test_one_class_is_one_thing() -> None:
    names = Counter(
        node.name
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} <= SAME_THING


@pytest.mark.parametrize(
    "path", re.findall(r"`((?:glassrank|tests|docs|configs|benchmarks)/[\w./-]*)`", ARCHITECTURE)
)
def test_the_architecture_names_what_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_architecture_names_every_package() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `glassrank/(\w+)/`", ARCHITECTURE, re.MULTILINE))


OVERRIDDEN = frozenset(
    "encode_query encode_doc query_words doc_words interact readouts rankers forward start "
    "mix_first_stage "
    "there from_function ensure_cache_path get_cache_path".split()
)
"""Of the models' contract and of numba's places for code, which say what they do."""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_public_name_says_what_it_is(path: Path) -> None:
    nodes: list[ast.AST] = [parsed(path)]
    for node in nodes:
        for child in getattr(node, "body", []):
            if not isinstance(child, ast.ClassDef | ast.FunctionDef):
                continue
            if isinstance(child, ast.ClassDef):
                nodes.append(child)
            elif "overload" in map(ast.unparse, child.decorator_list):
                continue
            if not child.name.startswith("_") and child.name not in OVERRIDDEN:
                assert ast.get_docstring(child), f"{path}: {child.name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_variables_have_the_name_of_what_they_hold(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] in ("backends", "rerank", "explanations"):
        return
    tree = parsed(path)
    fields = {
        statement.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    names = [
        node.id if isinstance(node, ast.Name) else node.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.arg) and node not in fields
    ]
    assert not {"found", "one", "own"} & set(names)
