"""`glassrank encode` from a model folder to a store, and what it says on the way."""

import json
import signal
from pathlib import Path

import pytest
import torch
from command_line import Call

from glassrank import console
from glassrank.embeddings import Progress, Store
from glassrank.index import Index
from glassrank.models import EmbeddingTable
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.late_interaction import ContextualConfig, TKConfig
from glassrank.research.papers.tk import TK
from glassrank.types import Doc

WORDS = ["<pad>", "<unk>", "cheese", "mice", "cats", "the", "sea", "cold", "chase"]


@pytest.fixture
def model(files: Path) -> Path:
    torch.manual_seed(0)
    config = TKConfig(size=8, contextual=ContextualConfig(1, 2, 4, feed_forward=8))
    tk = TK(config, EmbeddingTable(torch.randn(len(WORDS), 8), trained=False))
    save_model(files / "model", tk, Usage(), WORDS, "# card\n")
    return files / "model"


def test_a_store_is_made_inside_the_index(call: Call, index: Path, model: Path) -> None:
    done = call("encode", "my.index", "--model", "model")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    line = done.stderr.replace("\n", " ")
    before, _, after = line.partition(" for 4 documents (int8)")
    assert before.startswith("my.index/stores/tk-int8 will take about ")
    assert "my.index/stores/tk-int8: 4 documents (4 encoded in " in after
    assert " a second), " in line
    assert "bytes for each, " in line
    assert "of float32's" in line
    store = Store.open(index / "stores" / "tk-int8", load_model(model).model, Index(index).snapshot)
    assert store.dtype == "int8"


def test_numbers_as_json(call: Call, index: Path, model: Path) -> None:
    done = call(
        *("encode", "my.index", "--model", "model", "--dtype", "int8", "--name", "mine"),
        *("--quiet", "--json"),
    )
    assert done.stderr == ""
    numbers = json.loads(done.stdout)
    assert numbers["path"] == "my.index/stores/mine"
    assert (numbers["dtype"], numbers["documents"], numbers["encoded"]) == ("int8", 4, 4)
    files = (index / "stores" / "mine").rglob("*.npy")
    assert numbers["bytes"] == sum(file.stat().st_size for file in files)
    assert numbers["bytes_per_document"] == numbers["bytes"] / 4


def encode_again(call: Call) -> str:
    return call("encode", "my.index", "--model", "model").stderr


def test_it_follows_the_index(call: Call, index: Path, model: Path) -> None:
    call("encode", "my.index", "--model", "model")
    assert "4 documents (nothing to do)" in encode_again(call)
    changed = Index(index)
    changed.add([Doc("birds", "Birds chase mice.")])
    assert "5 documents (1 encoded in " in encode_again(call)
    changed.add([Doc("bees", "Bees chase nobody.")])
    changed.merge()
    assert "6 documents (1 encoded and 5 copied in " in encode_again(call)


def test_time_left_is_shown_in_plain_lines(
    call: Call, index: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_PLAIN_LINE_SECONDS", 0.0)
    done = call("encode", "my.index", "--model", "model")
    line = [line for line in done.stderr.splitlines() if line.startswith("Encoding: ")][-1]
    assert line.startswith("Encoding: 4 of 4, ")
    assert line.endswith(" bytes each, 0:00:00 left")
    assert console._describe_speed(Progress(1, 9, 12345.6, 1000.4, 3725.0)) == (
        "12,346 documents/s, 1,000 bytes each, 1:02:05 left"
    )


def test_an_interruption_says_that_the_work_is_kept(
    call: Call, index: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("glassrank.embeddings.part.PartWriter.finish", interrupt)
    done = call("encode", "my.index", "--model", "model")
    assert done.returncode == 130
    assert done.stderr.count("\n") == 2  # the size comes first
    assert "to continue: glassrank encode my.index --model model\n" in done.stderr
    monkeypatch.undo()
    monkeypatch.chdir(index.parent)
    assert call("encode", "my.index", "--model", "model").returncode == 0
    Store.open(index / "stores" / "tk-int8", load_model(model).model, Index(index).snapshot)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("my.index", "--model", "model", "--dtype", "int4"), "unknown dtype 'int4'; expected"),
        (("my.index", "--model", "model", "--name", "../x"), "must be a plain folder name"),
        (("my.index", "--model", "model", "--name", ""), "must be a plain folder name"),
        (("my.index", "--model", "model", "--device", "moon"), "found 'moon'"),
        (("my.index", "--model", "my.index"), "is not a model folder"),
        (("model", "--model", "model"), "is not an index"),
    ],
)
def test_mistakes_are_one_sentence(
    call: Call, index: Path, model: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = call("encode", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (index / "stores").exists()


def test_an_index_and_its_store_in_one_command(call: Call, files: Path, model: Path) -> None:
    done = call("index", "docs.tsv", "--out", "new.index", "--model", "model", "--quiet", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["store"]["path"] == "new.index/stores/tk-int8"
    assert made["store"]["encoded"] == made["docs"] > 0
    snapshot = Index(files / "new.index").snapshot
    Store.open(files / "new.index" / "stores" / "tk-int8", load_model(model).model, snapshot)
    wrong = call("index", "docs.tsv", "--out", "other.index", "--model", "nowhere")
    assert wrong.returncode == 2 and "the package has strong, default, fast, tiny" in wrong.stderr
    assert not (files / "other.index").exists()
