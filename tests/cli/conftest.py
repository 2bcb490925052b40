"""A small index, queries, judgments, and the command line as a user calls it."""

import sys
from pathlib import Path

import pytest
from command_line import DOCS, Call, Done

from glassrank.cli import main
from glassrank.index import Index
from glassrank.types import Doc


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Call:
    """Runs `glassrank …` in an empty folder with a cache of its own. That something is compiled on
    the way, where nobody has done so before, is told to people alone."""
    monkeypatch.setattr("glassrank.cli._say_compiling", lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["glassrank", *arguments])
        try:
            main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        return Done(status, *capfd.readouterr())

    return run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "docs.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in DOCS.items()))
    (tmp_path / "queries.tsv").write_text("q1\tcheese for mice\nq2\tcold sea\n")
    (tmp_path / "qrels.txt").write_text("q1 0 cats 1\nq1 0 mice 2\nq2 0 fish 1\n")
    return tmp_path


@pytest.fixture
def index(files: Path) -> Path:
    Index.build((Doc(doc_id, text) for doc_id, text in DOCS.items()), files / "my.index")
    return files / "my.index"
