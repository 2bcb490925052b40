"""The commands from documents to measures, run as a user runs them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Call

import glassrank.corpus
from glassrank.index.snapshot import read_manifest
from glassrank.models import EmbeddingTable
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.types import Doc


def test_index_says_what_it_made(call: Call, files: Path) -> None:
    done = call("index", "docs.tsv", "--out", "my.index")
    assert "4 documents (4 added)" in done.stderr
    assert done.stdout == ""


def test_search_shows_results_with_their_words(call: Call, index: Path) -> None:
    done = call("search", "my.index", "cheese for mice")
    assert done.returncode == 0
    first = done.stdout.splitlines()[0]
    assert first.split()[:2] == ["1", "mice"]
    assert "Mice eat cheese" in done.stdout


def test_search_as_json_has_plain_numbers(call: Call, index: Path) -> None:
    answer = json.loads(call("search", "my.index", "cold sea", "--json", "--k", "2").stdout)
    assert [hit["doc_id"] for hit in answer["hits"]] == ["fish"]
    assert isinstance(answer["hits"][0]["score"], float)


def test_search_without_a_match_says_so(call: Call, index: Path) -> None:
    assert "no document contains a word of this query" in call("search", "my.index", "zebra").stdout
    for query in ("the of and", "?!"):
        assert "this query has only stop words" in call("search", "my.index", query).stdout
    assert "the query is empty" in call("search", "my.index", " ").stdout


def test_add_replace_delete_and_merge(call: Call, index: Path, files: Path) -> None:
    (files / "more.jsonl").write_text('{"_id": "cats", "text": "Cats purr."}\n')
    refused = call("index", "more.jsonl", "--out", "my.index", "--add")
    assert refused.returncode == 2
    assert "more.jsonl" in refused.stderr or "'cats'" in refused.stderr
    done = call("index", "more.jsonl", "--out", "my.index", "--add", "--replace", "--json")
    assert json.loads(done.stdout)["docs"] == 4
    done = call("index", "--out", "my.index", "--delete", "dogs", "--merge", "--json")
    assert json.loads(done.stdout) | {"docs": 3, "deleted": 1, "segments": 1} == json.loads(
        done.stdout
    )
    found = json.loads(call("search", "my.index", "purr", "--json").stdout)
    assert [hit["doc_id"] for hit in found["hits"]] == ["cats"]


def test_add_and_delete_are_one_change(call: Call, index: Path, files: Path) -> None:
    (files / "more.jsonl").write_text('{"_id": "cats", "text": "Cats purr."}\n')
    add = ("index", "more.jsonl", "--out", "my.index", "--add")
    refused = call(*add, "--delete", "dogs")  # cats are there already
    assert refused.returncode == 2
    assert json.loads(call("search", "my.index", "barking", "--json").stdout)["hits"]
    done = call(*add, "--delete", "dogs", "--delete", "cats", "--merge", "--json")
    found = json.loads(done.stdout)
    assert (found["docs"], found["added"], found["deleted"], found["segments"]) == (3, 1, 2, 1)
    assert read_manifest(index).generation == 2


def test_retrieve_then_evaluate(call: Call, index: Path, files: Path) -> None:
    done = call("retrieve", "my.index", "queries.tsv", "--out", "bm25.run")
    assert "for 2 queries" in done.stderr
    assert (files / "bm25.run").read_text().splitlines()[0].split()[:4] == ["q1", "Q0", "mice", "1"]
    done = call("evaluate", "bm25.run", "qrels.txt", "-m", "RR@10", "-m", "nDCG@10", "--json")
    assert json.loads(done.stdout) == {"queries": 2, "mean": {"RR@10": 1.0, "nDCG@10": 1.0}}


def test_evaluate_against_a_baseline(call: Call, index: Path, files: Path) -> None:
    call("retrieve", "my.index", "queries.tsv", "--out", "ql.run", "--method", "ql")
    (files / "base.run").write_text("q1 Q0 dogs 1 2 base\nq1 Q0 cats 2 1 base\n")
    done = call(
        "evaluate", "ql.run", "qrels.txt", "-m", "RR@10", "--baseline", "base.run", "--json"
    )
    row = json.loads(done.stdout)["baseline"]["RR@10"]
    assert row["mean"] == 0.25
    assert row["difference"] == 0.75
    shown = call("evaluate", "ql.run", "qrels.txt", "-m", "RR@10", "--baseline", "base.run").stdout
    assert "+0.7500" in shown


def test_several_runs_are_measured_at_once(call: Call, index: Path, files: Path) -> None:
    for name, method in (("a.run", "bm25"), ("b.run", "ql")):
        call(
            "retrieve",
            "my.index",
            "queries.tsv",
            "--out",
            name,
            "--method",
            method,
            "--tag",
            "mine",
        )
    assert Path("a.run").read_text().splitlines()[0].endswith(" mine")
    asked = ("evaluate", "a.run", "b.run", "qrels.txt", "-m", "RR@10", "-m", "Judged@5")
    report = json.loads(call(*asked, "--baseline", "a.run", "--margin", "0.1", "--json").stdout)
    assert set(report["runs"]) == {"a.run", "b.run"}
    claims = report["runs"]["b.run"]["baseline"]["RR@10"]["non_inferior"]
    assert list(claims) == ["10%"] and claims["10%"]["holds"] in (True, False)
    shown = call(*asked).stdout
    assert "a.run" in shown and "b.run" in shown and "Judged@5" in shown


def test_another_field_of_topics_is_searched_for(call: Call, index: Path, files: Path) -> None:
    topics = "<top><num> 1 <title> cheese <desc> fish in the sea </top>"
    Path("topics.txt").write_text(topics)
    for field, best in (("title", "mice"), ("desc", "fish")):
        call("retrieve", "my.index", "topics.txt", "--out", "t.run", "--field", field)
        assert Path("t.run").read_text().split()[2] == best


def test_tune_gives_a_method_that_can_be_used(call: Call, index: Path) -> None:
    done = call("tune", "my.index", "queries.tsv", "qrels.txt", "--method", "ql", "--json")
    best = json.loads(done.stdout)["best"]
    assert best["value"] == 1.0
    assert call("search", "my.index", "cat", "--method", best["method"]).returncode == 0


@pytest.mark.long
def test_demo_answers_and_keeps_its_index(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = [Doc("list.sort", "Sort the list in place."), Doc("os.listdir", "Names of files.")]
    monkeypatch.setattr(glassrank.corpus, "python_docs", lambda: docs)  # all take a minute
    command = ("demo", "--k", "1", "--budget-ms", "5000", "sort a list in place")
    done = call(*command)
    assert done.returncode == 0, done.stderr
    assert "list.sort" in done.stdout
    assert "Indexed" in done.stderr
    again = call(*command)
    assert "Indexed" not in again.stderr
    assert "list.sort" in again.stdout


def test_a_model_outside_the_package_is_named_with_its_class(
    call: Call, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever types the class trusts it; a folder alone is refused, and the sentence says how."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "models")
    from outside_model import SoftTF, SoftTFConfig

    words = ["<pad>", "<unk>", "cheese", "mice", "cats"]
    table = EmbeddingTable(torch.eye(5, 12), trained=False)
    save_model(Path("mine"), SoftTF(SoftTFConfig(), table), Usage(), words, "# card\n")
    refused = call("search", "my.index", "mice", "--model", "mine")
    assert refused.returncode == 2
    said = " ".join(refused.stderr.split())
    assert "name the model outside_model:SoftTF@FOLDER" in said
    named = ("--model", "outside_model:SoftTF@mine", "--json")
    found = json.loads(call("search", "my.index", "mice", *named).stdout)
    assert {hit["doc_id"] for hit in found["hits"]} == {"mice", "cats"}
    best = found["hits"][0]
    why = json.loads(call("explain", "my.index", "mice", best["doc_id"], *named).stdout)
    assert why["is_additive"] and why["score"] == pytest.approx(best["score"], abs=1e-6)
    assert call("encode", "my.index", *named[:2], "--quiet").returncode == 0


def test_warmup_compiles_and_loads_what_lists_are_ranked_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from glassrank import rerank
    from glassrank.cli import warmup

    done: list[Any] = []
    monkeypatch.setattr(warmup, "compile_modules", lambda package: done.append(package.name))
    monkeypatch.setattr(warmup, "compile_all", lambda: done.append("code"))
    monkeypatch.setattr(rerank, "load", lambda name, warm: done.append((name, warm)))
    warmup.warmup()
    assert done == ["glassrank", "code", ("fast", True), ("default", True)]
    assert capsys.readouterr().err.startswith("Ready, in ")
