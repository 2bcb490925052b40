"""Every figure of the papers' tables names its config, and the file is what was run."""

import json
import re
from pathlib import Path

import pytest

from glassrank.research.train.config_files import settings_hash

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "configs"
FIGURES = json.loads((CONFIGS / "figures.json").read_text("utf-8"))
RESULTS = (ROOT / "docs" / "results.md").read_text("utf-8")
TABLES = RESULTS[RESULTS.index("## Papers' tables") : RESULTS.index("## How fast is training")]
FIRST_STAGES = ("BM25", "query likelihood")


def rows() -> list[tuple[str, str, str, str]]:
    """Section, folder, name and config of each row in a table that has configs."""
    found = []
    for section in TABLES.split("\n### ")[1:]:
        title = section.splitlines()[0]
        for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
            head, _, *lines = table.splitlines()
            if head.endswith(" config |"):
                folder = re.findall(r"`configs/([\w-]+)`", section)[0]
                cells = [line.strip("| ").split(" | ") for line in lines]
                found += [(title, folder, row[0].strip(), row[-1]) for row in cells]
    return found


ROWS = [row for row in rows() if not row[2].startswith(FIRST_STAGES)]


def test_there_are_some() -> None:
    assert len(ROWS) > 80
    assert {folder for _, folder, *_ in ROWS} >= {"insuranceqa", "wiki-headings", "graded", "adapt"}


@pytest.mark.parametrize(("section", "folder", "name", "cell"), ROWS)
def test_a_row_names_its_config_and_says_where_its_run_differed(
    section: str, folder: str, name: str, cell: str
) -> None:
    named = re.findall(r"`([\w/-]+)`(§?)", cell)
    assert named, f"{name} has no config"
    for stem, mark in named:
        entry = FIGURES[stem if "/" in stem else f"{folder}/{stem}"]
        assert bool(mark) == (section in entry.get("runs that differed", {}))


@pytest.mark.parametrize("config", FIGURES)
def test_the_file_is_what_was_run(config: str) -> None:
    """A file that must change gets another name, or its figures are made anew."""
    assert settings_hash(CONFIGS / f"{config}.toml") == FIGURES[config]["settings"]


def test_a_hash_follows_what_is_extended(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"\nx = 1\n')
    (tmp_path / "b.toml").write_text("y = 1  # a comment\n")
    before = settings_hash(tmp_path / "a.toml")
    (tmp_path / "b.toml").write_text("y = 1\n")
    assert settings_hash(tmp_path / "a.toml") == before
    (tmp_path / "b.toml").write_text("y = 2\n")
    assert settings_hash(tmp_path / "a.toml") != before
