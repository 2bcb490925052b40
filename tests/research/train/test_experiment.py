"""An experiment from files to its table: trained once, the same again, refused where it must be."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from glassrank.cli import make_app
from glassrank.errors import InputError
from glassrank.models.io.load import load_model
from glassrank.research.commands.experiment import as_markdown
from glassrank.research.train.batches import SplitTensors
from glassrank.research.train.config_files import read_config
from glassrank.research.train.experiment import experiment
from glassrank.research.train.prepared import Split, make_fold, queries_by_fold
from glassrank.research.train.prepared_folders import load_prepared
from glassrank.research.train.validate import quality_by_depth

COMMON = """
prepared = "prepared"
query_length = 4
doc_length = 12
vectors = { size = 8, min_count = 1 }
sampler = { batch = 8, negatives = 2 }
optimizer = { steps = 6, rest = 0.05, vectors = 0.01 }
validation = { every = 3 }
candidates = { train_depth = 10, dev_depth = 10 }

[[collections]]
name = "tiny"
docs = "docs.tsv"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(40)]
    docs = [" ".join(rng.choice(words, 8)) for _ in range(60)]
    (tmp_path / "docs.tsv").write_text("".join(f"d{n}\t{text}\n" for n, text in enumerate(docs)))
    lines = COMMON
    for split, start in (("train", 0), ("dev", 20), ("test", 40)):
        numbers = range(start, start + 20)
        queries = (f"q{n}\t{' '.join(docs[n].split()[:2])}\n" for n in numbers)
        (tmp_path / f"{split}.tsv").write_text("".join(queries))
        (tmp_path / f"{split}.txt").write_text("".join(f"q{n} 0 d{n} 1\n" for n in numbers))
        lines += f'{split}_queries = "{split}.tsv"\n{split}_qrels = "{split}.txt"\n'
    (tmp_path / "common.toml").write_text(lines)
    for model in ("knrm", "conv_knrm"):
        text = f'extends = "common.toml"\nmodel = "{model}"\nout = "runs/{model}"\n'
        (tmp_path / f"{model}.toml").write_text(text)
    return tmp_path


def on_test(folder: Path, run: Path, fold: int | None = None) -> float:
    """What a trained model is worth there, by another way than the experiment's own."""
    result = json.loads((run / "result.json").read_text())
    assert result["test"] is None  # nothing is looked at before dev queries have chosen
    config = read_config(folder / "knrm.toml")
    prepared = load_prepared(folder / "prepared", config)
    test = prepared.test if fold is None else make_fold(prepared, fold).test
    assert test is not None
    data = SplitTensors.read(test, prepared.docs, config.lengths, "cpu")
    curve, _ = quality_by_depth(load_model(run / "best").model, data, "RR@10")
    return curve.at(result["depth"])


def test_models_and_seeds_make_one_table(folder: Path) -> None:
    configs = [folder / "knrm.toml", folder / "conv_knrm.toml"]
    result = experiment(configs, seeds=[1, 2], measures=["RR@10", "nDCG@10"])
    assert result.split == "test" and len(result.first_stage.query_ids) == 20
    assert {name: [r.seed for r in results] for name, results in result.systems.items()} == {
        "knrm": [1, 2],
        "conv_knrm": [1, 2],
    }
    assert len(result.comparisons) == 4
    for name, results in result.systems.items():
        values = [on_test(folder, folder / "runs" / name / f"seed-{r.seed}") for r in results]
        assert [r.evaluation.mean["RR@10"] for r in results] == pytest.approx(values)
        mean, deviation = result.spread(name, "RR@10")
        assert mean == pytest.approx(np.mean(values))
        assert deviation == pytest.approx(np.std(values, ddof=1))
    table = as_markdown(result)
    assert table.count("\n| ") == 3 and "first stage" in table and "4 comparisons" in table


def test_the_command_writes_markdown_and_json_and_goes_on(folder: Path) -> None:
    asked = ["experiment", str(folder / "knrm.toml"), "--seed", "3", "-m", "RR@10", "-q"]
    out = folder / "table.md"
    done = CliRunner().invoke(make_app(), [*asked, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_text() in done.output and "| knrm |" in out.read_text()
    report = json.loads(out.with_suffix(".json").read_text())
    again = json.loads(CliRunner().invoke(make_app(), [*asked, "--json"]).output)
    assert again == report and report["systems"]["knrm"][0]["seed"] == 3
    row = report["systems"]["knrm"][0]
    values = row["per_query"]["RR@10"]
    assert len(values) == 20 and np.mean(values) == pytest.approx(row["mean"]["RR@10"], abs=1e-5)
    alone = report["first_stage_per_query"]["RR@10"]
    assert np.mean(alone) == pytest.approx(report["first_stage"]["RR@10"])
    by_depth = row["by_depth"]["RR@10"]
    assert by_depth[0] == pytest.approx(report["first_stage"]["RR@10"], abs=1e-5)
    assert by_depth[row["depths"][0] - 1] == pytest.approx(row["mean"]["RR@10"], abs=1e-5)


def test_what_cannot_be_compared_is_refused(folder: Path) -> None:
    other = (folder / "common.toml").read_text().replace('test_qrels = "test.txt"\n', "")
    (folder / "other.toml").write_text('model = "knrm"\nout = "o"\n' + other)
    with pytest.raises(InputError, match="run them separately"):
        experiment([folder / "knrm.toml", folder / "other.toml"])
    with pytest.raises(InputError, match="unknown baseline 'bm25'"):
        experiment([folder / "knrm.toml"], baseline="bm25")
    with pytest.raises(InputError, match="was given twice"):
        experiment([folder / "knrm.toml"] * 2)


def test_a_search_keeps_what_is_best_on_dev_queries(folder: Path) -> None:
    config = folder / "knrm.toml"
    text = config.read_text() + "\n[[search]]\noptimizer = { rest = 0.2 }\n"
    config.write_text(text + "[[search]]\noptimizer = { rest = 0.0, vectors = 0.0 }\n")
    result = experiment([config], seeds=[1, 2], measures=["RR@10"])
    out = folder / "runs/knrm"
    tried = [out / "seed-1", out / "setting-1/seed-1", out / "setting-2/seed-1"]
    values = [json.loads((run / "result.json").read_text())["at_all"] for run in tried]
    best = int(np.argmax(values))
    kept = [on_test(folder, tried[best].parent / f"seed-{n}") for n in (1, 2)]
    assert [r.evaluation.mean["RR@10"] for r in result.systems["knrm"]] == pytest.approx(kept)
    assert len(list(out.rglob("result.json"))) == 4  # the second seed tries nothing again
    assert all(f"{value:.4f}" in result.chosen["knrm"] for value in values)
    assert result.chosen["knrm"] in as_markdown(result)


def test_a_search_tells_settings_below_the_first_stage_apart(folder: Path) -> None:
    """At the best depth they are all the first stage's, at depth 1."""
    docs = dict(line.split("\t") for line in (folder / "docs.tsv").read_text().splitlines())
    asked = (f"q{number}\t{docs[f'd{number}']}\n" for number in range(20, 40))
    (folder / "dev.tsv").write_text("".join(asked))  # BM25 finds each document by all its words
    config = folder / "knrm.toml"
    still = config.read_text() + "optimizer = { steps = 6, rest = 0.0, vectors = 0.0 }\n"
    learns = "\n[[search]]\noptimizer = { steps = 40, rest = 0.1 }\n"
    config.write_text(still + learns)
    result = experiment([config], measures=["RR@10"])
    out = folder / "runs/knrm"
    tried = [out / "seed-42", out / "setting-1/seed-42"]
    found = [json.loads((run / "result.json").read_text()) for run in tried]
    assert [run["depth"] for run in found] == [1, 1] and found[0]["value"] == found[1]["value"] == 1
    assert found[0]["at_all"] < found[1]["at_all"]
    assert result.chosen["knrm"].startswith("{'optimizer': {'steps': 40")


def test_a_search_may_try_settings_for_fewer_steps(folder: Path) -> None:
    config = folder / "knrm.toml"
    text = "search_steps = 3\n" + config.read_text()
    config.write_text(text + "\n[[search]]\noptimizer = { rest = 0.0, vectors = 0.0 }\n")
    result = experiment([config], seeds=[1], measures=["RR@10"])
    out = folder / "runs/knrm"
    tried = [out / "setting-0/seed-1", out / "setting-1/seed-1"]
    steps = [json.loads((run / "log.jsonl").read_text().splitlines()[-1])["step"] for run in tried]
    last = json.loads((out / "seed-1/log.jsonl").read_text().splitlines()[-1])["step"]
    assert steps == [3, 3] and last == 6  # the chosen one begins again, and goes to its end
    assert "all candidates re-ranked, of each after 3 steps" in result.chosen["knrm"]
    assert result.systems["knrm"][0].evaluation.mean["RR@10"] == pytest.approx(
        on_test(folder, out / "seed-1")
    )


@pytest.mark.parametrize(
    "change", ["seed = 3", 'out = "elsewhere"', "doc_length = 9", "vectors = { size = 4 }"]
)
def test_a_search_does_not_change_what_arrays_are_made_of(folder: Path, change: str) -> None:
    """The card would tell of arrays that the model was not trained on."""
    config = folder / "knrm.toml"
    config.write_text(f"{config.read_text()}\n[[search]]\n{change}\n")
    with pytest.raises(InputError, match="setting 1 of its search changes"):
        experiment([config])
    assert not (folder / "prepared").exists()


def test_a_setting_that_is_none_is_refused_before_anything_is_trained(folder: Path) -> None:
    config = folder / "knrm.toml"
    config.write_text(config.read_text() + "\n[[search]]\noptimizer = { rests = 0.2 }\n")
    with pytest.raises(InputError, match="there is no 'rests'; did you mean 'rest'"):
        experiment([config])
    assert not (folder / "prepared").exists()


def test_each_query_is_measured_by_the_model_of_its_fold(folder: Path) -> None:
    config = folder / "knrm.toml"
    config.write_text(config.read_text() + "folds = { count = 4 }\n")
    result = experiment([config], seeds=[1, 2], measures=["RR@10"])
    assert result.split == "cross-validated"
    assert sorted(map(int, result.first_stage.query_ids)) == list(range(20))
    prepared = load_prepared(folder / "prepared")
    for seed in result.systems["knrm"]:
        assert len(seed.depths) == 4
        assert seed.evaluation.query_ids == result.first_stage.query_ids
        at = 0
        for fold, queries in enumerate(queries_by_fold(prepared)):
            run = folder / f"runs/knrm/fold-{fold}/seed-{seed.seed}"
            values = seed.evaluation.per_query["RR@10"][at : at + len(queries)]
            assert values.mean() == pytest.approx(on_test(folder, run, fold))
            at += len(queries)
    assert "20 cross-validated queries" in as_markdown(result)


def test_a_fold_learns_from_all_but_two(folder: Path) -> None:
    config = folder / "knrm.toml"
    config.write_text(config.read_text() + "folds = { count = 4 }\n")
    experiment([config], measures=["RR@10"])
    prepared = load_prepared(folder / "prepared")
    tested = queries_by_fold(prepared)
    assert sorted(np.concatenate(tested).tolist()) == list(range(20))

    def texts(split: Split) -> list[tuple[int, ...]]:
        return [tuple(split.queries[n].tolist()) for n in range(len(split.queries))]

    for fold in range(4):
        parts = make_fold(prepared, fold)
        assert parts.test is not None
        assert texts(parts.test) == [texts(prepared.train)[n] for n in tested[fold]]
        assert texts(parts.dev) == [texts(prepared.train)[n] for n in tested[(fold + 1) % 4]]
        every = texts(parts.train) + texts(parts.dev) + texts(parts.test)
        assert sorted(every) == sorted(texts(prepared.train))


def test_folds_cannot_be_searched_nor_compared_with_others(folder: Path) -> None:
    folds = "folds = { count = 4 }\n"
    config = folder / "knrm.toml"
    config.write_text(config.read_text() + folds)
    with pytest.raises(InputError, match="run them separately"):
        experiment([config, folder / "conv_knrm.toml"])
    config.write_text(config.read_text() + "\n[[search]]\noptimizer = { rest = 0.2 }\n")
    with pytest.raises(InputError, match="has folds and a search"):
        experiment([config])
