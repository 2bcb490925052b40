"""The documentation is true: its Python and its commands run, its links and names lead somewhere,
and the site builds."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from page_runner import ROOT, PageRunner, check_output, find_reason, read_blocks, split_commands

from glassrank.cli import make_app
from glassrank.models import MODELS
from glassrank.research.papers.ensemble import Ensemble

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
BLOCKS = [
    (page.relative_to(ROOT).as_posix(), language, text)
    for page in PAGES
    for language, text in read_blocks(page)
]
RUN = (
    *("README.md", "docs/index.md", "docs/quickstart.md", "docs/guides/search.md"),
    *("docs/guides/rerank.md", "docs/guides/serve.md", "docs/guides/explain.md"),
    *("docs/guides/budgets.md", "docs/guides/train.md", "docs/guides/learn.md"),
    *("docs/reference/stores.md",),
    *("docs/reference/first-stage.md",),
)
"""Pages that are run from beginning to end."""
RUN_ELSEWHERE = {
    "docs/guides/integrations.md": "integrations/test_examples.py",
    "docs/reference/http.md": "serve/test_rerank_clients.py",
}
COLLECTION = [
    {
        "id": "csv",
        "title": "csv",
        "text": "csv.reader reads a CSV file row by row.",
        "year": 2020,
        "lang": "en",
    },
    {
        "id": "json",
        "title": "json",
        "text": "json.load parses a JSON file.",
        "year": 2021,
        "lang": "en",
    },
    {
        "id": "list.sort",
        "title": "list.sort",
        "text": "Sorts a list in place.",
        "year": 2019,
        "lang": "en",
    },
]


def list_blocks(language: str) -> list[tuple[str, str]]:
    """Every block of a language, with its page."""
    return [(page, text) for page, known, text in BLOCKS if known == language]


def test_every_block_is_run_or_has_a_reason() -> None:
    assert {language for _, language, _ in BLOCKS} <= {"python", "sh", "text", "toml", "json"}
    assert {page for page, _ in list_blocks("python")} <= {*RUN, *RUN_ELSEWHERE}
    lines = [(page, line) for page, text in list_blocks("sh") for line in split_commands(text)]
    assert not [(page, line) for page, line in lines if page not in RUN and not find_reason(line)]


@pytest.mark.parametrize(("page", "text"), list_blocks("toml"))
def test_settings_are_toml(page: str, text: str) -> None:
    assert tomllib.loads(text)


@pytest.mark.parametrize(("page", "text"), list_blocks("json"))
def test_documents_are_json(page: str, text: str) -> None:
    assert [json.loads(line) for line in text.splitlines()] == COLLECTION


@pytest.mark.parametrize(
    ("page", "line"),
    [
        (page, line)
        for page, text in list_blocks("sh")
        for line in split_commands(text)
        if line.startswith("glassrank ")
    ],
)
def test_every_command_has_the_options_that_it_is_shown_with(page: str, line: str) -> None:
    name, *arguments = shlex.split(line)[1:]
    command = typer.main.get_command(make_app()).commands[name]  # type: ignore[attr-defined]
    command.make_context(name, arguments)  # parses, and runs nothing


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_a_page_runs_and_prints_what_it_shows(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "soft_tf", raising=False)
    write_files()
    runner = PageRunner(monkeypatch, capfd)
    if page not in ("README.md", "docs/quickstart.md", "docs/guides/search.md"):
        make_index(runner)
    runner.run(ROOT / page)


def write_files() -> None:
    """What the pages speak of: documents, queries and qrels."""
    for name, docs in {
        "docs.jsonl": COLLECTION,
        "more.jsonl": [{"id": "tuple", "text": "A tuple cannot be changed.", "lang": "en"}],
    }.items():
        Path(name).write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    Path("queries.tsv").write_text("1\thow do I read a csv file?\n2\tsort a list\n")
    Path("qrels.txt").write_text("1 0 csv 1\n2 0 list.sort 1\n")


def make_index(runner: PageRunner) -> None:
    runner.run_commands("glassrank index docs.jsonl --out my.index --model default\n")
    runner.run_commands("glassrank encode my.index --model fast\n")


def test_another_output_would_be_noticed() -> None:
    check_output("a 1.50 … c\n", "a 1.51 b\n c \n")
    for other in ("a 1.53 b c\n", "x 1.50 b c\n", "a 1.50 b d\n"):
        with pytest.raises(AssertionError):
            check_output("a 1.50 … c\n", other)


# Links and names

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def slugify(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower()
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", plain))


def list_anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {slugify(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in list_anchors(there), f"{page.name} links to {target}"


NAME = re.compile(
    r"`(glassrank\.[a-z_.]+(?:[A-Z]\w*)?"
    r"|(?:glassrank|tests|docs|configs|benchmarks)/[\w./-]*"
    r"|[a-z_]+/[a-z_/]+\.(?:py|txt))(?:\(\))?`"
)
NAMED = sorted(
    {
        name
        for page in PAGES
        if page.name not in ("CHANGELOG.md", "experiments.md")  # these tell of the past
        for name in NAME.findall(page.read_text("utf-8"))
    }
)


@pytest.mark.parametrize("name", NAMED)
def test_names_of_ours_exist(name: str) -> None:
    if "/" in name:
        assert (ROOT / name).exists() or (ROOT / "glassrank" / name).exists()
        return
    path, parts = ROOT, name.split(".")
    while parts and ((path / parts[0]).is_dir() or (path / f"{parts[0]}.py").exists()):
        path /= parts.pop(0)
    module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    source = module.read_text("utf-8")  # not imported: it may need what is not installed
    assert all(re.search(rf"\b{part}\b", source) for part in parts)


def test_the_glossary_names_what_is_in_the_code() -> None:
    source = "\n".join(
        path.read_text("utf-8") for path in (ROOT / "glassrank").rglob("*.py")
    ) + "\n".join(path.as_posix() for path in (ROOT / "glassrank").rglob("*"))
    rows = re.findall(
        r"^\|[^|]+\|[^|]+\| (.+) \|$", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE
    )
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(names) > 60
    assert not [name for name in names if not re.search(rf"\b{re.escape(name)}", source)]


# The site


def test_every_page_of_the_site_is_in_its_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert pages == set(re.findall(r"[\w/-]+\.md\b", menu.partition("\nnav:")[2]))


def test_every_family_has_a_page_with_its_figure() -> None:
    for name in (*MODELS, Ensemble.info.name):
        page = (DOCS / "models" / f"{name}.md").read_text("utf-8")
        assert f"({name}.svg)" in page and "\n::: glassrank." in page


def test_figures_are_as_their_script_draws_them() -> None:
    names: dict[str, Any] = {"__file__": str(DOCS / "make_figures.py"), "__name__": "figures"}
    exec((DOCS / "make_figures.py").read_text("utf-8"), names)
    assert set(names["FIGURES"]) == {path.stem for path in (DOCS / "models").glob("*.svg")}
    for name, levels in names["FIGURES"].items():
        assert names["draw"](levels) == (DOCS / "models" / f"{name}.svg").read_text("utf-8")


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
    assert 'id="glassrank.rerank.text_pipeline.rank"' in pages["reference/api"]
    assert "--budget-ms" in pages["reference/cli"] and "scheduler.py" in pages["architecture"]
    # Readers fetch nothing from elsewhere.
    fetched = re.compile(r'(?:src|href)="https?://[^"]+\.(?:js|css|png|svg|woff2?)"')
    assert not [page for page, text in pages.items() if fetched.search(text)]
