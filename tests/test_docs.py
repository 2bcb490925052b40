"""What the documentation says is run: its Python and its commands, and the site is built."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

import glassrank as gr
from glassrank.cli import make_app
from glassrank.embeddings import encode_index
from glassrank.models import MODELS
from glassrank.models.io.model_folder import PACKAGED
from glassrank.research.papers.ensemble import Ensemble

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS.rglob("*.md")]
BLOCKS = [
    (page.relative_to(ROOT).as_posix(), language, text)
    for page in PAGES
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
]


def of(language: str) -> list[tuple[str, str]]:
    """A page and a block of it."""
    return [(page, text) for page, known, text in BLOCKS if known == language]


PYTHON_RUN_BY = {
    "README.md": "test_readme_example.py",
    "docs/index.md": "test_docs.py",
    "docs/reference/explanations.md": "test_docs.py",
    "docs/reference/http.md": "serve/test_rerank_clients.py",
    "docs/guides/integrations.md": "adapters/test_examples.py",
    "docs/guides/train.md": "test_research_page.py",
}
COMMANDS_RUN = {
    "glassrank encode my.index --model my.model": "test_commands_are_run",
    "glassrank index docs.jsonl --out my.index --model default": "test_commands_are_run",
    'glassrank explain my.index "androgen receptor define" d1 d2': "test_commands_are_run",
}
COMMANDS_NOT_RUN = {
    "./scripts/demo": "makes an environment from the network; test_scripts.py runs its parts",
    "./scripts/setup test": "installs, and pushes to a repository",
    "glassrank index docs.jsonl --out my.index --language de": "tests/cli/test_language_option.py",
    "glassrank serve my.index --budget-ms 50": "serves until it is stopped; tests/serve asks it",
    "glassrank serve my.index --model my.model": "serves until it is stopped; tests/serve asks it",
    "curl localhost:8000/v1/rerank": "needs that server; tests/serve/test_rerank_endpoint.py",
    "pip install '.[adapters]'": "installs from the network",
    "pip install '.[ray]'": "needs a cluster; tests/cluster/test_cluster.py",
    "glassrank experiment configs/papers/tk-2.toml": "hours on a GPU, and a collection",
    "pip install torch": "installs from the network, and needs a GPU",
    "glassrank experiment configs/insuranceqa/tk-2.toml": "minutes on a GPU, and a collection",
    "python benchmarks/long_documents.py": "minutes on a GPU, and a collection",
    "glassrank experiment configs/trec-2019/p1.toml": "minutes on a GPU, and collections",
    "glassrank prepare configs/insuranceqa/bert.toml": "hours on a GPU, and a collection",
    "glassrank prepare configs/adapt/wiki-sections-mores.toml": "a GPU, and a collection",
    "glassrank adapt configs/adapt/nfcorpus-bert.toml": "a GPU; tests/cli/test_adapt_command.py",
}
"""By their beginnings, and why; what is glassrank's in them is held against its options."""


def test_every_block_is_run_or_named_with_a_reason() -> None:
    assert {page for page, _ in of("python")} == set(PYTHON_RUN_BY)
    known = (*COMMANDS_RUN, *COMMANDS_NOT_RUN)
    shown = [(page, text) for page, text in of("sh") if page != "docs/guides/train.md"]  # run whole
    left = [text for _, text in shown if not text.startswith(known)]
    assert not left
    assert all(any(text.startswith(name) for _, text in of("sh")) for name in known)
    assert {language for _, language, _ in BLOCKS} <= {"python", "sh", "text", "toml"}


@pytest.mark.parametrize(("page", "text"), of("toml"))
def test_settings_are_toml(page: str, text: str) -> None:
    assert tomllib.loads(text)


COMMAND_LINES = [
    (page, line)
    for page, text in of("sh")
    for line in text.replace("\\\n", " ").splitlines()
    if line.startswith("glassrank ")
]


@pytest.mark.parametrize(("page", "line"), COMMAND_LINES)
def test_every_command_has_the_options_that_it_is_shown_with(page: str, line: str) -> None:
    name, *arguments = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(make_app()).commands[name]  # type: ignore[attr-defined]
    command.make_context(name, arguments)  # which parses, and runs nothing


def test_the_first_page_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    ((_, text),) = [block for block in of("python") if block[0] == "docs/index.md"]
    exec(text, {})
    assert capsys.readouterr().out == "A csv file is read by csv.reader.\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that examples speak of."""
    monkeypatch.chdir(tmp_path)
    docs = [
        gr.Doc("d1", "An androgen receptor is a protein that binds androgen."),
        gr.Doc("d2", "To define a receptor, say what it binds."),
    ]
    shutil.copytree(PACKAGED["fast"], tmp_path / "my.model")
    index = gr.Index.build(docs, "my.index")
    encode_index(index, gr.load("fast").saved)
    return tmp_path


def test_explanations_are_made_as_the_page_says(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((_, text),) = [block for block in of("python") if block[0] == "docs/reference/explanations.md"]
    names: dict[str, Any] = {}  # it defines all that it uses
    exec(text, names)
    assert "androgen" in capsys.readouterr().out and len(names["hits"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("beginning", COMMANDS_RUN)
def test_commands_are_run(beginning: str, place: Path) -> None:
    if "--out my.index" in beginning:
        shutil.rmtree(place / "my.index")
        line = '{"id": "a", "text": "A csv file is read by csv.reader."}\n'
        (place / "docs.jsonl").write_text(line)
    ((_, block),) = [block for block in of("sh") if block[1].startswith(beginning)]
    for line in block.splitlines():
        command = [sys.executable, "-m", *shlex.split(line, comments=True)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=place, timeout=300)
        assert done.returncode == 0, done.stderr


# The site


def test_every_family_has_a_page_with_its_figure() -> None:
    for name in (*MODELS, Ensemble.info.name):
        page = (DOCS / "models" / f"{name}.md").read_text("utf-8")
        assert f"({name}.svg)" in page and "\n::: glassrank.models." in page
        assert f"models/{name}.md" in (ROOT / "mkdocs.yml").read_text("utf-8")


def test_figures_are_as_their_script_draws_them() -> None:
    names: dict[str, Any] = {"__file__": str(DOCS / "make_figures.py"), "__name__": "figures"}
    exec((DOCS / "make_figures.py").read_text("utf-8"), names)
    assert set(names["FIGURES"]) == {path.stem for path in (DOCS / "models").glob("*.svg")}
    for name, levels in names["FIGURES"].items():
        assert names["drawn"](levels) == (DOCS / "models" / f"{name}.svg").read_text("utf-8")


def test_the_gallery_shows_every_view() -> None:
    shown = re.findall(r"\(screenshots/([\w-]+\.png)\)", (DOCS / "gallery.md").read_text("utf-8"))
    assert sorted(shown) == sorted(path.name for path in (DOCS / "screenshots").glob("*.png"))


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason=f"{package} is not there")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        capture_output=True, text=True, cwd=ROOT, timeout=600,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    pages = {
        path.parent.relative_to(site).as_posix(): path.read_text("utf-8")
        for path in site.rglob("index.html")
    }
    assert "Contextual words, one match matrix" in pages["models/tk"]
    assert 'id="glassrank.rerank.text_pipeline.rank"' in pages["api"]
    # Whoever reads it fetches nothing from elsewhere.
    fetched = re.compile(r'(?:src|href)="https?://[^"]+\.(?:js|css|png|svg|woff2?)"')
    assert not [page for page, text in pages.items() if fetched.search(text)]
