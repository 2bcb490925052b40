"""`glassrank budget`: the numbers are the model's own, in tables, JSON and pictures."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Call

from glassrank.corpus import read_qrels, read_run
from glassrank.models import EmbeddingTable
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.late_interaction import ContextualConfig, TKConfig
from glassrank.research.evaluate import evaluate
from glassrank.research.papers.tk import TK

WORDS = ["<pad>", "<unk>", "cheese", "mice", "cats", "the", "sea", "cold", "chase", "cat", "for"]
RUN = "q1 Q0 cats 1 3 a\nq1 Q0 mice 2 2 a\nq1 Q0 fish 3 1 a\nq2 Q0 dogs 1 2 a\nq2 Q0 fish 2 1 a\n"
BASIC = ("first.run", "qrels.txt", "--index", "my.index", "--queries", "queries.tsv")


def make_model(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    config = TKConfig(size=8, contextual=ContextualConfig(1, 2, 4, feed_forward=8))
    model = TK(config, EmbeddingTable(torch.randn(len(WORDS), 8), trained=False))
    with torch.no_grad():
        model.log_weights.uniform_(-1, 1)
    save_model(folder, model, Usage(), WORDS, "# card\n")


@pytest.fixture
def ready(call: Call, index: Path, files: Path) -> Path:
    """Models `one` and `two`, of which the first has a store, and a run to re-rank."""
    make_model(files / "one", seed=2)  # both change the order, for better and for worse
    make_model(files / "two", seed=4)
    (files / "first.run").write_text(RUN)
    done = call("encode", "my.index", "--model", "one", "--dtype", "float16")
    assert done.returncode == 0, done.stderr
    return files


def budget(call: Call, *more: str, models: tuple[str, ...] = ("one",)) -> dict[str, object]:
    chosen = [word for model in models for word in ("--model", model)]
    done = call("budget", *BASIC, *chosen, "--repeats", "1", "--json", "-", "--quiet", *more)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_every_depth_is_what_re_ranking_to_it_gives(call: Call, ready: Path) -> None:
    found = budget(call, models=("one", "two"))
    lines = {line["label"]: line for line in found["models"]}
    assert list(lines) == ["one (on the fly)", "one (stored, float16)", "two (on the fly)"]
    assert found["candidates"] == 3
    for line in lines.values():
        assert len(set(line["measures"]["nDCG@10"]["at_depth"])) > 2  # there is something to see
    for model in ("one", "two"):
        for depth in (1, 2, 3):
            done = call(
                *("rerank", "first.run", "--index", "my.index", "--queries", "queries.tsv"),
                *("--model", model, "--out", "second.run", "--depth", str(depth)),
            )
            assert done.returncode == 0, done.stderr
            qrels = read_qrels("qrels.txt")
            own = evaluate(read_run("second.run"), qrels, ["RR@10", "R@10", "nDCG@10"]).mean
            for name, value in own.items():
                curve = lines[f"{model} (on the fly)"]["measures"][name]
                assert curve["at_depth"][depth] == pytest.approx(value), (model, name, depth)
                assert curve["at_depth"][0] == found["first_stage"][name]


def test_milliseconds_follow_from_depth_and_speed(call: Call, ready: Path) -> None:
    found = budget(call, "--max-ms", "40")
    assert found["ms"] == list(range(41))
    for line in found["models"]:
        assert line["docs_per_ms"] > 0 and line["query_ms"] > 0
        left = np.maximum(np.array(found["ms"]) - line["query_ms"], 0)
        depths = np.minimum(np.floor(left * line["docs_per_ms"]), 3).astype(int)
        assert line["depth"] == depths.tolist()
        for curve in line["measures"].values():
            assert curve["at_ms"] == [curve["at_depth"][depth] for depth in depths]
            best = curve["best"]
            assert best["value"] == pytest.approx(max(curve["at_depth"]))
            assert best["value"] == curve["at_depth"][best["depth"]]


def test_the_depth_is_chosen_on_dev_queries(call: Call, ready: Path) -> None:
    (ready / "dev.qrels").write_text("q2 0 dogs 1\n")  # first already: nothing can be better
    found = budget(
        *(call, "--dev-run", "first.run", "--dev-qrels", "dev.qrels"),
        *("--dev-queries", "queries.tsv", "-m", "RR@10"),
    )
    curve = found["models"][0]["measures"]["RR@10"]
    assert found["chosen_on"] == "dev"
    assert max(curve["at_depth"]) > found["first_stage"]["RR@10"]  # which dev does not know
    assert curve["best"] == {"depth": 0, "ms": 0, "value": found["first_stage"]["RR@10"]}


def test_tables_have_the_first_stage_and_every_model(call: Call, ready: Path) -> None:
    done = call("budget", *BASIC, "--model", "one", "--repeats", "1", "--json", "all.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((ready / "all.json").read_text())
    best = found["models"][0]["measures"]["nDCG@10"]["best"]
    for text in ("first stage alone", "one (on the fly)", "one (stored, float16)", "docs/ms"):
        assert text in done.stdout
    assert f"{best['value']:.4f}" in done.stdout
    assert "2 judged queries, up to 3 candidates" in done.stdout


def test_the_picture_shows_the_same_lines(call: Call, ready: Path) -> None:
    arguments = ("budget", *BASIC, "--model", "one", "--repeats", "1", "-q", "--json", "-")
    done = call(*arguments, "--plot", "budget.svg")
    assert done.returncode == 0, done.stderr
    text = (ready / "budget.svg").read_text()
    for expected in (
        "one (on the fly)",
        "one (stored, float16)",
        "first stage alone",
        "RR@10",
        "R@10",
    ):
        assert expected in text
    assert call(*arguments, "--plot", "budget.png").returncode == 0
    assert (ready / "budget.png").read_bytes().startswith(b"\x89PNG")


def test_no_more_candidates_than_the_depth_are_scored(call: Call, ready: Path) -> None:
    found = budget(call, "--depth", "2")
    assert found["candidates"] == 2
    assert len(found["models"][0]["measures"]["RR@10"]["at_depth"]) == 3


def test_judged_queries_that_are_missing_are_counted(call: Call, ready: Path) -> None:
    (ready / "first.run").write_text(RUN[: RUN.index("q2")])
    done = call("budget", *BASIC, "--model", "two", "--repeats", "1")
    assert done.returncode == 0
    assert "1 of the 2 queries of qrels.txt are not in first.run and count 0" in done.stderr


@pytest.mark.parametrize(
    ("run", "more", "expected"),
    [
        ("q7 Q0 cats 1 1 a\n", [], "qrels.txt has no judgment for a query of first.run"),
        ("q1 Q0 zebra 1 1 a\n", [], "my.index has no document 'zebra', which first.run has"),
        (RUN, ["--model", "one"], "--model one was given twice"),
        (RUN, ["--model", "./one"], "--model one was given twice"),
        (RUN, ["--model", "my.index"], "my.index is not a model folder"),
        (RUN, ["--plot", "budget.gif"], "--plot writes .svg, .png, .pdf, found 'budget.gif'"),
        (RUN, ["--json", "none/budget.json"], "there is no folder none"),
        (RUN, ["--plot", "my.index"], "my.index is a folder"),
        (RUN, ["-m", "RR@ten"], "'RR@ten' is not a measure"),
        (RUN, ["--dev-run", "first.run"], "give --dev-run, --dev-qrels and --dev-queries together"),
    ],
)
def test_mistakes_are_one_sentence(
    call: Call, ready: Path, run: str, more: list[str], expected: str
) -> None:
    (ready / "first.run").write_text(run)
    done = call("budget", *BASIC, "--model", "one", *more)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stdout == ""


def test_a_query_that_is_missing_is_named(call: Call, ready: Path) -> None:
    (ready / "queries.tsv").write_text("q1\tcheese for mice\n")
    done = call("budget", *BASIC, "--model", "one")
    assert done.returncode == 2
    assert "queries.tsv has no query 'q2' of first.run" in done.stderr


def test_without_matplotlib_it_says_so_before_it_works(
    call: Call, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # an import of it fails
    done = call("budget", *BASIC, "--model", "one", "--plot", "budget.svg")
    assert done.returncode == 2
    assert "pip install 'glassrank[train]'" in done.stderr


def test_a_plan_is_learned_written_and_used(call: Call, ready: Path) -> None:
    found = budget(call, "--plan", "plan.json", "-m", "nDCG@10", models=("one", "two"))
    plan = json.loads((ready / "plan.json").read_text())
    assert plan["measure"] == "nDCG@10" and len(plan["models"]) == 2
    best_alone = max(found["models"][0]["measures"]["nDCG@10"]["at_depth"])
    for row in plan["budgets"]:
        assert row["value"] >= row["first_alone"] and max(row["depths"]) <= 3
    assert plan["budgets"][-1]["first_alone"] == pytest.approx(best_alone)
    models = ("--model", "one", "--model", "two", "--plan", "plan.json")
    done = call(
        *("rerank", "first.run", "--index", "my.index", "--queries", "queries.tsv"),
        *(*models, "--out", "second.run"),
    )
    assert done.returncode == 0, done.stderr
    value = evaluate(read_run("second.run"), read_qrels("qrels.txt"), ["nDCG@10"]).mean["nDCG@10"]
    assert value == pytest.approx(plan["budgets"][-1]["value"])
    shown = call("budget", *BASIC, *models[:4], "--repeats", "1", "--plan", "again.json").stdout
    assert "As a cascade: depths" in shown and "2,000 ms" in shown


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (("one",), "--plan needs several models"),
        (("two", "one"), "this plan was made for other models, or for these in another order"),
    ],
)
def test_a_plan_is_for_its_own_models(
    call: Call, ready: Path, models: tuple[str, ...], message: str
) -> None:
    budget(call, "--plan", "plan.json", models=("one", "two"))
    chosen = [word for model in models for word in ("--model", model)]
    for command in (
        ("search", "my.index", "cats", "--plan", "plan.json"),
        ("rerank", *("first.run", "--index", "my.index", "--queries", "queries.tsv")),
    ):
        out = ("--out", "x.run", "--plan", "plan.json") if command[0] == "rerank" else ()
        done = call(*command, *chosen, *out)
        assert done.returncode == 2 and message in done.stderr
    done = call("budget", *BASIC, "--model", "one", "--plan", "plan.json")
    assert done.returncode == 2 and "--plan needs several models" in done.stderr


def test_several_models_search_one_after_the_other(call: Call, ready: Path) -> None:
    options = ("--model", "one", "--model", "two", "--json")
    found = json.loads(call("search", "my.index", "cats for mice", *options).stdout)
    assert found["model"] == ["one", "two"]
    hops = [stage["name"] for stage in found["stages"]]
    assert hops == ["first_stage", "query_2", "scoring_2", "sorting"]
    best = found["hits"][0]
    shown = json.loads(call("explain", "my.index", "cats for mice", best["doc_id"], *options)[1])
    assert shown["score"] == pytest.approx(best["score"], abs=1e-4)
    alone = json.loads(
        call("search", "my.index", "cats for mice", "--model", "two", "--json").stdout
    )
    assert [hit["doc_id"] for hit in found["hits"]] == [hit["doc_id"] for hit in alone["hits"]]
