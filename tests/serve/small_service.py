"""A small index, two small models, and a service of them, in process or on a real socket."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from starlette.testclient import TestClient

from glassrank.embeddings import encode_index
from glassrank.errors import ERROR_CODES
from glassrank.index import Index
from glassrank.models import EmbeddingTable
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.late_interaction import ContextualConfig, TKConfig
from glassrank.research.papers.knrm import KNRM, KNRMConfig
from glassrank.research.papers.tk import TK
from glassrank.serve import IndexReloader, Options, make_app
from glassrank.serve.error_responses import CODES
from glassrank.serve.run import Server
from glassrank.types import Doc

WORDS = ["<pad>", "<unk>", "cat", "dog", "mat", "sat", "the", "sea", "cold", "warm", "bird"]
SCRIPT = "<script>alert('cat')</script> the cat & <b>the dog</b>"
COUNT = 40


def docs() -> list[Doc]:
    """All have a cat in them; one is full of HTML, and has an id that needs escaping."""
    rng = np.random.default_rng(1)
    texts = [
        " ".join(["cat", *rng.choice(WORDS[2:], rng.integers(1, 15))]) for _ in range(COUNT - 1)
    ]
    plain = [
        Doc(f"d{number}", text, "A title" if number % 3 else "", f"file:{number}", {"n": number})
        for number, text in enumerate(texts)
    ]
    return [*plain, Doc("../<html>?&", SCRIPT, "<i>title</i>")]


def tiny_tk() -> SavedModel:
    torch.manual_seed(0)
    config = TKConfig(size=8, contextual=ContextualConfig(1, 2, 4, feed_forward=8))
    model = TK(config, EmbeddingTable(torch.randn(len(WORDS), 8), trained=False))
    with torch.no_grad():
        model.log_weights.uniform_(-1, 1)
        model.length_weights.uniform_(-1, 1)
    model.mix_first_stage(0.5)
    return SavedModel(model.eval(), Usage(query_length=6, doc_length=12), WORDS)


def tiny_knrm() -> SavedModel:
    torch.manual_seed(1)
    model = KNRM(KNRMConfig(size=8), EmbeddingTable(torch.randn(len(WORDS), 8), trained=False))
    return SavedModel(model.eval(), Usage(query_length=6, doc_length=12), WORDS)


def make_folders(folder: Path) -> Options:
    """An index with TK's documents stored in half precision; KNRM scores live."""
    index = Index.build(docs(), folder / "index")
    models = {"tk": tiny_tk(), "knrm": tiny_knrm()}
    for name, saved in models.items():
        save_model(folder / name, saved.model, saved.usage, saved.vocabulary, "# card\n")
    encode_index(index, models["tk"], dtype="float16")
    return Options(
        folder / "index",
        tuple((name, str(folder / name)) for name in models),
        budget_ms=10_000.0,  # tests of something else than time have as much as may be asked for
        work_ms=10_000.0,
        refresh_seconds=0.05,
    )


@contextmanager
def in_process(options: Options, reloader: IndexReloader | None = None) -> Iterator[TestClient]:
    app = make_app(options, reloader)
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        yield client


@contextmanager
def on_a_socket(options: Options) -> Iterator[str]:
    """A real server on a free port of this machine; its address."""
    server = Server(make_app(options), options, port=0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
            assert thread.is_alive()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)


def raw(address: str, *parts: bytes, timeout: float = 20) -> bytes:
    """All that a server answers to these bytes until it closes, or for a while."""
    host, _, port = address.removeprefix("http://").partition(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout) as connection:
        for part in parts:
            connection.sendall(part)
        with suppress(TimeoutError, ConnectionResetError):
            while data := connection.recv(1 << 16):
                answer += data
    return answer


def message(response: Any) -> str:
    """Of an error response, which clients of Cohere and of Jina can read."""
    body = response.json()
    assert body["message"] == body["detail"]
    assert body["code"] in ERROR_CODES or body["code"] == CODES[response.status_code]
    return str(body["message"])
