"""One query in a new process pays for what it needs, and for nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from glassrank import Doc, Index
from glassrank.cli.search import search
from glassrank.rerank import Pipeline

DOCS = [Doc("a", "a cat on a mat"), Doc("b", "a dog")]


SEARCHES = {
    "bm25": ["--method", "bm25"],
    "feedback": ["--method", "bm25+rm3"],
    "a model": ["--model", "fast"],
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_imports_nothing_that_it_does_not_need(tmp_path: Path, name: str) -> None:
    """Compiled code is for many documents, and for stored ones."""
    Index.build(DOCS, tmp_path / "my.index")
    code = (
        "import sys, atexit; from glassrank.cli import main;"
        "heavy = {'glassrank.research', 'asyncio', 'numba', 'torch', 'scipy'};"
        "atexit.register(lambda: print('imported', sorted(heavy & set(sys.modules)))); main()"
    )
    arguments = ["search", str(tmp_path / "my.index"), "cat", *SEARCHES[name]]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "a cat on a mat" in done.stdout
    assert done.stdout.endswith("imported []\n")


def test_only_a_budget_needs_to_know_what_a_piece_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index.build(DOCS, tmp_path / "my.index")
    calibrated: list[Pipeline] = []
    monkeypatch.setattr(Pipeline, "calibrate", lambda self: calibrated.append(self))
    search(tmp_path / "my.index", "cat", model=["default"], k=2)
    assert not calibrated
    search(tmp_path / "my.index", "cat", model=["default"], k=2, budget_ms=10_000.0)
    assert len(calibrated) == 1


def test_a_pipeline_is_ready_before_its_first_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.build(DOCS, tmp_path / "my.index")
    asked: list[str] = []
    plain = Index.top_k

    def noted(self: Index, queries: list[str], *rest: object, **more: object) -> object:
        asked.extend(queries)
        return plain(self, queries, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "top_k", noted)
    Pipeline(index)
    assert len(asked) == 1


@pytest.mark.parametrize("options", ["", ", budget_ms=500", ", model='strong', budget_ms=500"])
def test_a_list_is_ranked_with_nothing_that_it_does_not_need(options: str) -> None:
    """Neither file readers nor evaluation, and nothing waits for a compiler."""
    code = (
        "import sys; import glassrank as gr;"
        f"gr.rank('a cat.', ['A cat sat.', 'Dogs bark, too.']{options});"
        "heavy = {'glassrank.research', 'glassrank.corpus', 'glassrank.cli', 'torch', 'numba',"
        "'asyncio', 'scipy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"


def test_importing_the_package_loads_little() -> None:
    """Neither another module of ours nor a dependency, so that it takes no time."""
    code = "import sys; import glassrank; print(*(n for n in sys.modules if n.count('.') < 2))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {name for name in done.stdout.split() if name.startswith("glassrank")}
    assert modules == {"glassrank"}
    assert not {"numba", "numpy", "onnxruntime", "torch", "typer"} & set(done.stdout.split())
