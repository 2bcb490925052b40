"""The README's Python, run as it stands, and what a new user tries first."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import glassrank as gr
from glassrank.embeddings import encode_index
from glassrank.models.io.load import load_named

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
[EXAMPLE] = re.findall("```python\n(.*?)```", README, re.DOTALL)
TEXTS = [f"The reader of module {n} reads a csv file, {'row ' * n}" for n in range(30)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    docs = [gr.Doc(f"d{n}", text, f"Module {n}") for n, text in enumerate(TEXTS)]
    encode_index(gr.Index.build(docs, "my.index"), load_named("default"))
    return tmp_path


def test_the_example_runs_and_is_short(folder: Path) -> None:
    names: dict = {"texts": TEXTS}
    exec(EXAMPLE.replace("budget_ms=50)", "budget_ms=5000)").replace("=500)", "=60_000)"), names)
    search, ranking = names["search"], names["ranking"]
    assert search.store is not None  # found without being named
    assert ranking.depth == len(TEXTS) and not ranking.cut_short and not ranking.num_encoded
    assert ranking[0].title.startswith("Module ")
    assert len([line for line in EXAMPLE.splitlines() if line]) == 5


def test_a_pipeline_finds_the_store_of_its_model(folder: Path) -> None:
    index = gr.Index("my.index")
    assert gr.Pipeline(index, gr.load(), budget_ms=50).store is not None
    for none in (False, None):
        assert gr.Pipeline(index, gr.load(), store=none, calibrate=False).store is None


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
