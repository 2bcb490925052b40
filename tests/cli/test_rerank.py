"""`glassrank rerank` from a model folder to a run."""

import json
from pathlib import Path

import pytest
import torch
from command_line import Call

from glassrank.models import EmbeddingTable
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.research.papers.knrm import KNRM, KNRMConfig

WORDS = ["<pad>", "<unk>", "cheese", "mice", "cats", "the", "sea", "cold", "chase"]


def make_model(folder: Path) -> None:
    torch.manual_seed(0)
    model = KNRM(KNRMConfig(size=8), EmbeddingTable(torch.randn(len(WORDS), 8), trained=False))
    save_model(folder, model, Usage(depth=1), WORDS, "# card\n")


def test_a_run_is_re_ranked(call: Call, index: Path, files: Path) -> None:
    make_model(files / "model")
    call("retrieve", "my.index", "queries.tsv", "--out", "first.run")
    done = call(
        *("rerank", "first.run", "--index", "my.index", "--queries", "queries.tsv"),
        *("--model", "model", "--out", "second.run", "--depth", "5"),
    )
    assert done.returncode == 0, done.stderr
    assert "2 queries, " in done.stderr
    lines = (files / "second.run").read_text().splitlines()
    assert {line.split()[0] for line in lines} == {"q1", "q2"}


@pytest.mark.parametrize(
    ("query", "doc", "model", "message"),
    [
        ("q7", "cats", "model", "has no query 'q7'"),
        ("q1", "dragons", "model", "no document 'dragons'"),
        ("q1", "cats", "my.index", "is not a model folder"),
    ],
)
def test_what_is_missing_is_named(
    query: str, doc: str, model: str, message: str, call: Call, index: Path, files: Path
) -> None:
    make_model(files / "model")
    (files / "first.run").write_text(f"{query} Q0 {doc} 1 2 base\n")
    done = call(
        *("rerank", "first.run", "--index", "my.index", "--queries", "queries.tsv"),
        *("--model", model, "--out", "second.run"),
    )
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.long
def test_exact_writes_the_same_bytes_with_any_number_of_threads(
    call: Call, index: Path, files: Path
) -> None:
    call("retrieve", "my.index", "queries.tsv", "--out", "first.run")
    before, written = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            done = call(
                *("rerank", "first.run", "--index", "my.index", "--queries", "queries.tsv"),
                *("--model", "default", "--exact", "--out", f"{threads}.run"),
            )
            assert done.returncode == 0, done.stderr
            shown = call("explain", "my.index", "cheese for mice", "mice", "--exact", "--json")
            found = json.loads(
                call("search", "my.index", "cold cats", "--model", "default", "--exact", "--json")[
                    1
                ]
            )
            written.append(((files / f"{threads}.run").read_text(), shown.stdout, found["hits"]))
    finally:
        torch.set_num_threads(before)
    assert written[0] == written[1]
