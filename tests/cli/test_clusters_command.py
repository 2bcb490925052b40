"""`glassrank clusters`: queries of one kind together, with the ranks of two runs."""

import json
from collections import Counter
from pathlib import Path
from statistics import median

import pytest
import torch
from command_line import Call

from glassrank.models import EmbeddingTable
from glassrank.models.io import torch_files
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.research.papers.knrm import KNRM, KNRMConfig

WORDS = ["<pad>", "<unk>", "how", "long", "is", "what", "means", "rust", "gold"]
LONG = [f"how long is x{n}" for n in range(12)]
MEANS = [f"what means x{n}" for n in range(8)]
ARGUMENTS = (
    *("clusters", "second.run", "--baseline", "first.run", "--queries", "queries.tsv"),
    *("--qrels", "qrels.txt", "--model", "model"),
)


def make_model(folder: Path) -> None:
    torch.manual_seed(0)
    model = KNRM(KNRMConfig(size=8), EmbeddingTable(torch.randn(len(WORDS), 8), trained=False))
    save_model(folder, model, Usage(), WORDS, "# card\n")


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """Two kinds of queries: the model helps the first and hurts the second."""
    make_model(tmp_path / "model")
    texts = LONG + MEANS
    first, second, qrels = [], [], []
    for number in range(len(texts)):
        good = number < len(LONG)
        for run, place in ((first, 3 if good else 1), (second, 1 if good else 2)):
            for rank in (1, 2, 3):
                doc = "right" if rank == place else f"other{rank}"
                run.append(f"q{number} Q0 {doc} {rank} {4 - rank} x\n")
        qrels.append(f"q{number} 0 right 1\n")
    qrels.append("q99 0 right 1\n")  # in neither run
    (tmp_path / "first.run").write_text("".join(first))
    (tmp_path / "second.run").write_text("".join(second))
    (tmp_path / "qrels.txt").write_text("".join(qrels))
    (tmp_path / "queries.tsv").write_text(
        "".join(f"q{number}\t{text}\n" for number, text in enumerate(texts))
    )
    return tmp_path


def test_json_has_every_query_with_its_ranks_and_cluster(call: Call, ready: Path) -> None:
    done = call(*ARGUMENTS, "--k", "2", "--json", "-", "--quiet")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    helped, hurt = found["clusters"]
    assert helped["terms"] == ["long"]
    assert (helped["queries"], helped["baseline"], helped["model"]) == (12, 3, 1)
    assert (helped["gain"], helped["better"], helped["worse"]) == (2, 12, 0)
    assert hurt["name"] == "means"
    assert (hurt["gain"], hurt["better"], hurt["worse"]) == (-1, 0, 8)
    assert found["all"]["queries"] == 20
    assert found["all"]["baseline"] == median([3] * 12 + [1] * 8)
    assert Counter(query["cluster"] for query in found["queries"]) == {0: 12, 1: 8}
    assert {query["text"] for query in found["queries"] if query["cluster"] == 0} == set(LONG)
    assert found["queries"][0]["query_id"] in helped["examples"]
    assert {(q["baseline"], q["model"], q["gain"]) for q in found["queries"]} == {
        (3, 1, 2),
        (1, 2, -1),
    }
    assert found["elbow"] == []


def test_the_table_has_names_medians_and_examples(call: Call, ready: Path) -> None:
    done = call(*ARGUMENTS, "--k", "2", "--json", "all.json")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].split() == "long 12 3 1 +2 12 0".split()
    assert "how long is x" in lines[2]
    assert lines[-1].split() == "all queries 20 3 1 +2 12 8".split()
    assert "skipped 1 of 21 judged queries" in done.stderr
    assert json.loads((ready / "all.json").read_text())["format"] == 1


def test_losses_may_come_first(call: Call, ready: Path) -> None:
    lines = call(*ARGUMENTS, "--k", "2", "--sort", "loss").stdout.splitlines()
    assert lines[1].startswith("means")


def test_the_elbow_finds_the_two_kinds(call: Call, ready: Path) -> None:
    done = call(*ARGUMENTS, "--json", "-", "-q")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [tried["k"] for tried in found["elbow"]] == [1, 2, 3, 4]
    assert len(found["clusters"]) == 2


def test_a_rank_that_is_not_there_is_null(call: Call, ready: Path) -> None:
    (ready / "second.run").write_text("q0 Q0 right 1 1 x\nq1 Q0 other1 1 1 x\n")
    done = call(*ARGUMENTS, "--k", "1", "--json", "-", "-q")
    by_id = {query["query_id"]: query for query in json.loads(done.stdout)["queries"]}
    assert (by_id["q0"]["model"], by_id["q0"]["gain"]) == (1, 2)
    assert (by_id["q1"]["model"], by_id["q1"]["gain"]) == (None, None)
    shown = call(*ARGUMENTS, "--k", "1")
    assert "none" in shown.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--k", "21"], "--k must be at most 20"),
        (["--sort", "name"], "--sort must be one of gain, loss, size"),
        (["--json", "none/all.json"], "there is no folder none"),
        (["--model", "."], "is not a model folder"),
        (["--queries", "few.tsv"], "few.tsv lacks query 'q1'"),
        (["--qrels", "other.txt"], "neither first.run nor second.run has a relevant document"),
    ],
)
def test_mistakes_in_clusters_are_one_sentence(
    call: Call, ready: Path, more: list[str], expected: str
) -> None:
    (ready / "few.tsv").write_text("q0\thow long is x0\n")
    (ready / "other.txt").write_text("q0 0 nothing 1\n")
    done = call(*ARGUMENTS, *more)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stdout == ""


def test_a_model_without_query_vectors_is_refused(
    call: Call, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = KNRM.encode_query
    monkeypatch.setattr(torch_files, "check_score", lambda *_: None)  # it would not load otherwise
    monkeypatch.setattr(
        KNRM, "encode_query", lambda model, batch: encode(model, batch)._replace(vectors=batch.ids)
    )
    done = call(*ARGUMENTS)
    assert done.returncode == 2
    assert "a knrm is a cross-encoder" in done.stderr
