"""The scripts that make figures of an experiment's tables, on the tables of a tiny one."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glassrank.cli import make_app
from tests.research.train.test_experiment import folder as folder

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def made(script: str, *arguments: object) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_tables_become_figures(folder: Path) -> None:
    table = folder / "knrm.md"
    asked = ["experiment", str(folder / "knrm.toml"), "-m", "RR@10", "-q", "--out", str(table)]
    assert CliRunner().invoke(make_app(), asked).exit_code == 0
    for source, target in (("docs.tsv", "collection.tsv.gz"), ("test.tsv", "queries.test.tsv.gz")):
        with gzip.open(folder / target, "wt") as file:
            file.write((folder / source).read_text())
    tables = table.with_suffix(".json")
    budget = folder / "budget.json"
    told = made(
        "time_budget.py", tables, "--configs", folder, "--data", folder, "--repeats", 1,
        "--json", budget, "--plot", folder / "budget.svg",
    )  # fmt: skip
    report, row = json.loads(budget.read_text()), json.loads(tables.read_text())
    assert "knrm (on the fly)" in told and "<svg" in (folder / "budget.svg").read_text()
    line = report["models"][0]
    assert line["docs_per_ms"] > 0
    values = line["measures"]["RR@10"]["at_depth"]
    assert values[1:] == row["systems"]["knrm"][0]["by_depth"]["RR@10"]
    assert values[0] == row["first_stage"]["RR@10"]
    types = made("query_types.py", tables, "--queries", folder / "test.tsv", "--k", 2)
    lines = types.splitlines()
    assert lines[0] == "| queries | | first stage | knrm |" and len(lines) == 5
    assert f"{row['systems']['knrm'][0]['mean']['RR@10']:.3f}" in lines[-1]


def test_a_collection_has_a_row_of_statistics(folder: Path) -> None:
    docs = [line.split("\t")[1].split() for line in (folder / "docs.tsv").read_text().splitlines()]
    cells = made("collection_statistics.py", folder / "knrm.toml").splitlines()[-1].split(" | ")
    assert cells[1:3] == ["60", "8.0"] and cells[5:] == ["20", "20", "20", "2.0", "1.0 |"]
    assert cells[4] == str(len({word for words in docs for word in words}))
