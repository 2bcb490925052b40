"""What no linter checks: the architecture page names the real packages, and one name is one thing.

`lint-imports` checks the order of packages (pyproject.toml), ruff the docstrings.
"""

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import glassrank

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "glassrank"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
TREES = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def find_imports(path: Path) -> set[str]:
    """Modules of ours that a file imports, inside functions too, but not for types alone."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_no_module_imports_itself_through_others() -> None:
    """An import inside a function only hides a cycle."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in TREES
        if path.name != "__init__.py"
    }
    graph = {name: find_imports(path) & modules.keys() for name, path in modules.items()}
    TopologicalSorter(graph).prepare()  # a CycleError names the cycle


def test_the_architecture_page_names_what_exists() -> None:
    paths = re.findall(r"`((?:glassrank|tests|docs|configs|benchmarks)/[\w./-]*)`", ARCHITECTURE)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_architecture_page_names_every_package() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `glassrank/(\w+)/`", ARCHITECTURE, re.MULTILINE))


SAME_IDEA = frozenset(
    # A command and what it calls; the plain maths and its fast forms; the manifest and the writer
    # of an index and of a store.
    "adapt budget clusters encode evaluate experiment index judge learn prepare runs "
    "search select tune attention contextual kernels transformer "
    "manifest writer cascade_plan".split()
)


def test_one_module_name_is_one_idea() -> None:
    names = Counter(path.stem for path in TREES if not path.stem.startswith("__"))
    assert {name for name, count in names.items() if count > 1} <= SAME_IDEA


SAME_THING = frozenset(
    # The plain maths and its fast forms; a change, and the request for it; what an index and what a
    # store is made of.
    "Change Layer Manifest _Layer".split()
)


def test_one_class_name_is_one_thing() -> None:
    nodes = (node for tree in TREES.values() for node in ast.walk(tree))
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} <= SAME_THING


def test_the_version_is_in_one_place() -> None:
    assert f'version = "{glassrank.__version__}"' not in (ROOT / "pyproject.toml").read_text()
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"## {glassrank.__version__}" in changelog
