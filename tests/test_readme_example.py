"""The README, run as it stands, and what a new user tries first."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from page_runner import ROOT, PageRunner, read_blocks

import glassrank as gr
from glassrank.embeddings import encode_index
from glassrank.models.io.load import load_named

README = ROOT / "README.md"


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 130
    [example] = [text for language, text in read_blocks(README) if language == "python"]
    assert len([line for line in example.splitlines() if line]) <= 6


def test_the_example_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = README.read_text("utf-8")
    Path("part.md").write_text(text[: text.index("## Why")], "utf-8")
    runner = PageRunner(monkeypatch, capfd)
    runner.run(Path("part.md"))
    assert not runner.names["ranking"].cut_short


def test_a_pipeline_finds_the_store_of_its_model(tmp_path: Path) -> None:
    docs = [gr.Doc(f"d{n}", f"Module {n} reads a csv file.") for n in range(3)]
    index = gr.Index.build(docs, tmp_path / "my.index")
    encode_index(index, load_named("default"))
    assert gr.Pipeline(index, gr.load(), budget_ms=50).store is not None
    assert gr.Pipeline(index, gr.load(), use_store=False, calibrate=False).store is None


def test_every_name_is_what_it_says() -> None:
    assert gr.load() is gr.load("default")  # one model in memory, however it is named
    assert inspect.isfunction(gr.rank) and inspect.getdoc(gr.rank)
    assert list(inspect.signature(gr.open).parameters)[:2] == ["index", "model"]
    for name in gr.__all__:
        assert getattr(gr, name)
    assert (Path(gr.__file__).parent / "py.typed").exists()


def test_the_package_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "glassrank", "--version"],
        capture_output=True, text=True, cwd=ROOT, timeout=120,
    )  # fmt: skip
    assert done.stdout == f"glassrank {gr.__version__}\n", done.stderr
