"""One query in a new process pays for what it needs, and for nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from glassrank import Doc, Index
from glassrank.cli.search import search
from glassrank.ranking import Pipeline

DOCS = [Doc("a", "a cat on a mat"), Doc("b", "a dog")]


@pytest.mark.parametrize("method", ["bm25", "bm25+rm3"])
def test_a_search_without_a_model_imports_nothing_that_ranks(tmp_path: Path, method: str) -> None:
    Index.build(DOCS, tmp_path / "my.index")
    code = (
        "import sys, atexit; from glassrank.cli import main; heavy = {'numba', 'torch', 'scipy'};"
        "atexit.register(lambda: print('imported', sorted(heavy & set(sys.modules)))); main()"
    )
    arguments = ["search", str(tmp_path / "my.index"), "cat", "--method", method]
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
    search(tmp_path / "my.index", "cat", model=["default"], k=2, budget_ms=100.0)
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
