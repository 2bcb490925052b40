"""`glassrank adapt`: a table with significance, and runs that anybody can measure again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import Call

from glassrank.corpus import read_qrels, read_run
from glassrank.research.commands.train import _print_table
from glassrank.research.evaluate import Evaluation, compare_all, evaluate
from glassrank.research.train.prepared_folders import load_prepared, save_prepared

COMMON = """
model = "knrm"
query_length = 4
doc_length = 12
sampler = { batch = 8, negatives = 2 }
optimizer = { steps = 4, rest = 0.05, vectors = 0.01 }
validation = { every = 2 }
candidates = { train_depth = 10, dev_depth = 10 }
vectors = { size = 8, min_count = 1 }
"""
COLLECTION = {
    "name": "tiny", "docs": "docs.tsv", "train_queries": "queries.tsv", "train_qrels": "qrels.txt",
}  # fmt: skip


@pytest.fixture
def ready(call: Call, tmp_path: Path) -> Path:
    """A trained model, and arrays to adapt it."""
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(40)]
    docs = [" ".join(rng.choice(words, 8)) for _ in range(40)]
    (tmp_path / "docs.tsv").write_text("".join(f"d{n}\t{text}\n" for n, text in enumerate(docs)))
    queries = (f"q{n}\t{' '.join(docs[n].split()[:2])}\n" for n in range(15))
    (tmp_path / "queries.tsv").write_text("".join(queries))
    (tmp_path / "qrels.txt").write_text("".join(f"q{n} 0 d{n} 1\n" for n in range(15)))
    lines = "[[collections]]\n" + "".join(f'{n} = "{value}"\n' for n, value in COLLECTION.items())
    dev = 'dev_queries = "queries.tsv"\ndev_qrels = "qrels.txt"\n'
    first = f'out = "first"\nprepared = "first-arrays"\n{COMMON}{lines}{dev}'
    second = 'out = "adapted"\nprepared = "arrays"\nstart = { model = "first/best" }\n'
    (tmp_path / "first.toml").write_text(first)
    (tmp_path / "adapt.toml").write_text(f"{second}folds = {{ count = 3 }}\n{COMMON}{lines}")
    for command, name in (("prepare", "first"), ("train", "first"), ("prepare", "adapt")):
        done = call(command, f"{name}.toml", "--quiet")
        assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.long
def test_runs_have_the_figures_of_the_table_and_the_collections_ids(
    call: Call, ready: Path
) -> None:
    done = call("adapt", "adapt.toml", "--runs", "kept/runs", "--baseline", "first stage", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told) == ["first stage", "none", "all"]
    qrels = read_qrels("qrels.txt")
    measured = {}
    for name, row in told.items():
        run = read_run(f"kept/runs/{name.replace(' ', '-')}.run")
        assert {query for query, _, _ in run.items()} == {f"q{n}" for n in range(15)}
        measured[name] = evaluate(run, qrels, list(row["mean"]))
        assert measured[name].mean == pytest.approx(row["mean"])
    # A query's own document is among its candidates, and not another's.
    assert measured["first stage"].mean["RR@10"] > 0.5
    rows = compare_all({n: measured[n] for n in ("none", "all")}, measured["first stage"])
    p_values = [
        (each["measure"], each["p"], each["p_corrected"])
        for name in ("none", "all")
        for each in told[name]["comparisons"]
    ]
    assert told["first stage"]["comparisons"] == []
    for row, (measure, p, corrected) in zip(rows, p_values, strict=True):
        assert (row.measure, row.p_value, row.corrected_p) == (
            measure,
            pytest.approx(p),
            pytest.approx(corrected),
        )
    assert any(corrected > p for _, p, corrected in p_values)


@pytest.mark.long
def test_the_table_says_what_it_was_compared_with(call: Call, ready: Path) -> None:
    done = call("adapt", "adapt.toml", "--mode", "none", "--mode", "all", "--quiet")
    assert "Non-inferior to adapting all" in done.stdout
    assert "6 comparisons" in " ".join(done.stdout.split())  # two rows of three measures
    done = call("adapt", "adapt.toml", "--baseline", "first stage", "--quiet")
    assert "Non-inferior to first stage" in done.stdout


def test_marks_say_who_differs_and_who_is_not_worse(capsys: pytest.CaptureFixture[str]) -> None:
    quality = np.random.default_rng(1).random(50)

    def row(difference: float) -> Evaluation:
        values = quality + difference * np.random.default_rng(2).normal(1, 0.5, 50)
        ids = tuple(map(str, range(50)))
        return Evaluation(ids, {"AP": float(values.mean())}, {"AP": values})

    rows = {"all": row(0.0), "none": row(-0.2), "interaction": row(0.0), "representation": row(0.1)}
    others = {name: rows[name] for name in list(rows)[1:]}
    _print_table(rows, "all", compare_all(others, rows["all"]))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    marks = {line[0]: line[1].lstrip("0123456789.") for line in lines[1:5]}
    assert marks == {"all": "", "none": "‡", "interaction": "†", "representation": "†‡"}


def test_mistakes_are_told_before_anything_is_trained(call: Call, ready: Path) -> None:
    for arguments, sentence in (
        (("--baseline", "bert"), "unknown baseline 'bert'; expected first stage, none"),
        (("--mode", "none", "--baseline", "all"), "unknown baseline 'all'"),
    ):
        done = call("adapt", "adapt.toml", *arguments)
        assert done.returncode == 2 and sentence in " ".join(done.stderr.split())
    save_prepared(Path("arrays"), replace(load_prepared("arrays"), ids=None))  # of before
    done = call("adapt", "adapt.toml", "--runs", "kept")
    assert done.returncode == 2 and "needs arrays with ids" in done.stderr
    assert not Path("kept").exists() and not Path("adapted").exists()


def test_the_help_names_what_the_config_needs(call: Call) -> None:
    assert "start.model and folds" in " ".join(call("adapt", "--help").stdout.split())
