"""`glassrank serve`: what it refuses to start with."""

import socket
from pathlib import Path

import pytest
import torch
from command_line import Call

from glassrank.models import EmbeddingTable
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.research.papers.knrm import KNRM, KNRMConfig


@pytest.fixture
def model(files: Path) -> Path:
    torch.manual_seed(0)
    words = ["<pad>", "<unk>", "cats", "mice"]
    knrm = KNRM(KNRMConfig(size=8), EmbeddingTable(torch.randn(len(words), 8), trained=False))
    save_model(files / "model", knrm, Usage(), words, "# card\n")
    return files / "model"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere", "--model", "model"), "nowhere is not an index"),
        (("my.index", "--model", "nowhere"), "nowhere is not a model folder"),
        (("my.index", "--model", "a=model", "--model", "a=model"), "not unique"),
        (("my.index", "--model", "model", "--host", "0.0.0.0"), "an API key is needed"),
        (("my.index", "--model", "model", "--api-key-file", "docs.tsv", "--no-auth"), "not both"),
        (("my.index", "--model", "model", "--api-key-file", "nokey"), "nokey does not exist"),
        (("my.index", "--model", "model", "--budget-ms", "0"), "budget_ms must be more than 0"),
        (("my.index", "--model", "model", "--method", "bm52"), "did you mean bm25?"),
        (("my.index", "--model", "model", "--clusters", "docs.tsv"), "cannot be read as JSON"),
    ],
)
def test_bad_options_are_one_sentence(
    call: Call, index: Path, model: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = call("serve", *arguments, "--port", "0", "--quiet")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_named(call: Call, index: Path, model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = call("serve", "my.index", "--model", "model", "--port", port)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr


def test_a_damaged_index_is_not_served(call: Call, index: Path, model: Path) -> None:
    victim = next(index.glob("segment-*/texts.data.npy"))
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    done = call("serve", "my.index", "--model", "model", "--port", "0")
    assert done.returncode == 1
    assert "texts.data.npy is damaged" in done.stderr
