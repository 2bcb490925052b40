"""A small collection, three small models, and the real service of them on a free port."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import page_needs  # noqa: F401
import torch
import uvicorn

from glassrank.backends.configs import EncoderConfig
from glassrank.cli import main
from glassrank.index import Index
from glassrank.models import EmbeddingTable
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.models.late_interaction import ContextualConfig, TKConfig
from glassrank.rerank import Reranker
from glassrank.research.papers.knrm import KNRM, KNRMConfig
from glassrank.research.papers.mores import MORES, MORESConfig
from glassrank.research.papers.tk import TK
from glassrank.serve import Options, make_app
from glassrank.text import split_words
from glassrank.types import Doc

QUERY = "androgen receptor define"
DEFINITION = (
    "The androgen receptor (AR), also known as NR3C4, is a type of nuclear receptor: a protein "
    "that binds hormones in cells."
)
THERAPY = (
    "Androgen therapy is given to men with low hormones; doctors study how androgen levels "
    "change in the body after weeks of treatment."
)
HTML = (
    "<script>window.ran = 'script'</script><img src=x onerror=\"window.ran = 'image'\"> "
    "a <b>bold</b> receptor &amp; <style>body{display:none}</style> androgen </div></li>"
)
EMOJI = "😀 🧬 the receptor 🧪 of \u202emice\u202c and cats 😀 define"

DOCS = [
    Doc("ar", DEFINITION, "The androgen receptor", "https://example.org/ar"),
    Doc("therapy", THERAPY, "Androgen therapy", "notes/therapy.txt"),
    Doc("../<b>?&", HTML, "<i>Not italic</i>"),
    Doc("emoji", EMOJI),
    *(
        Doc(f"d{number}", text)
        for number, text in enumerate(
            [
                "Cats chase mice, and sleep in the sun.",
                "Dogs chase cats. A dog barks at the postman.",
                "Mice eat cheese while the cat is away.",
                "A receptor of the cell binds hormones of the body.",
                "To define a word is to say what it means.",
                "The cell has a nucleus; a receptor is a protein in it.",
                "Androgen is a hormone. Hormones define how cells change.",
                "A treatment of weeks: doctors define low levels.",
                "define the receptor, define the cell, define the androgen",
                "Levels of androgen in mice and cats after treatment.",
            ]
        )
    ),
]
QUERIES = {
    "q1": (QUERY, "ar"),
    "q2": ("what is a receptor", "d5"),
    "q3": ("cats chase mice", "d0"),
    "q4": ("dogs chase cats", "d1"),
    "q5": ("define hormone", "d6"),
    "q6": ("androgen levels in mice", "d9"),
    "q7": ("low levels treatment", "d7"),
    "q8": ("what is a cell", "d5"),
}
WORDS = ["<pad>", "<unk>", *sorted({w for doc in DOCS for w in split_words(doc.text)} - {"nr3c4"})]
_WHOLE = sorted({word for doc in DOCS for word in split_words(doc.text)} - {"androgen", "receptor"})
PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "andro", "##gen", "recep", "##tor"),
    *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"),
    *(word for word in _WHOLE if word.isascii()),
]


@dataclass(frozen=True)
class Site:
    address: str
    index: Index
    models: dict[str, Reranker]
    """By name; the page's first is `tk`."""
    reports: dict[str, dict]  # type: ignore[type-arg]


def save_models(folder: Path) -> tuple[tuple[str, str], ...]:
    """TK mixes the first stage in; KNRM and MORES, which have other signals, do not."""
    torch.manual_seed(4)
    table = EmbeddingTable(torch.randn(len(WORDS), 8), torch.rand(len(WORDS)), trained=False)
    contextual = ContextualConfig(1, 2, 4, feed_forward=8)
    tk = TK(TKConfig(size=8, contextual=contextual, term_weights=True), table)
    knrm = KNRM(KNRMConfig(size=8), table)
    with torch.no_grad():
        for weights in (tk.log_weights, tk.length_weights):
            weights.uniform_(-0.4, 0.4)
    tk.mix_first_stage(0.3)
    for name, model in (("tk", tk), ("knrm", knrm)):
        save_model(folder / name, model.eval(), Usage(12, 30), WORDS, "# card\n")
    save_model(folder / "mores", tiny_mores(), Usage(12, 40), PIECES, "# card\n")
    return tuple((name, str(folder / name)) for name in ("tk", "knrm", "mores"))


def tiny_mores() -> MORES:
    """With larger weights than a fresh model has, so that scores really differ."""
    torch.manual_seed(5)
    size = EncoderConfig(len(PIECES), 12, layers=3, heads=2, feed_forward=16, positions=40)
    model = MORES(MORESConfig.like(size, blocks=2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def write_reports(folder: Path) -> None:
    """As a user would: with the commands, whose JSON the page reads."""
    (folder / "queries.tsv").write_text("".join(f"{i}\t{q}\n" for i, (q, _) in QUERIES.items()))
    (folder / "qrels.txt").write_text(
        "".join(f"{i} 0 {doc} 1\n" for i, (_, doc) in QUERIES.items())
    )
    index, queries, qrels = (str(folder / name) for name in ("index", "queries.tsv", "qrels.txt"))
    first, second, model = (str(folder / name) for name in ("first.run", "second.run", "tk"))
    given = ["--index", index, "--queries", queries, "--model", model]
    _call("retrieve", index, queries, "--out", first, "--depth", "10")
    _call("rerank", first, *given, "--out", second)
    asked = ["--baseline", first, "--queries", queries, "--qrels", qrels, "--model", model]
    _call("clusters", second, *asked, "--k", "3", "--json", str(folder / "clusters.json"))
    _call("budget", first, qrels, *given, "--repeats", "1", "--json", str(folder / "budget.json"))


def _call(*arguments: str) -> None:
    before = sys.argv
    sys.argv = ["glassrank", *arguments, "--quiet"]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, arguments
    finally:
        sys.argv = before


@contextmanager
def served(folder: Path) -> Iterator[Site]:
    index = Index.build(DOCS, folder / "index")
    models = save_models(folder)
    write_reports(folder)
    options = Options(
        folder / "index",
        models,
        budget_ms=1000.0,
        clusters=folder / "clusters.json",
        curves=folder / "budget.json",
    )
    names = {"clusters": "clusters.json", "budget": "budget.json"}
    with running(options) as address:
        yield Site(
            address,
            index,
            {name: Reranker.load(path) for name, path in models},
            {name: json.loads((folder / file).read_text()) for name, file in names.items()},
        )


@contextmanager
def running(options: Options) -> Iterator[str]:
    """The address of a real server in a thread of this process."""
    app = make_app(replace(options, port=0))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
            assert thread.is_alive()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(timeout=60)
