"""Whoever searches, ranks texts, explains, encodes or serves with TK or KernelBERT needs no
PyTorch: all is done in processes where it cannot be imported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "models"))
from model_folders import PIECES, piece_model, word_model

pytest.importorskip("numba")

WITHOUT = """
import sys
sys.modules["torch"] = None  # who imports it gets an ImportError
"""
EVERYTHING = """
from pathlib import Path

import glassrank as gr
from glassrank.serve import Options, make_app
from glassrank.serve.run import prepare_process
from glassrank.embeddings import encode_index
from starlette.testclient import TestClient

def everything(folder, docs, path):
    model, index = gr.load(folder), gr.Index.build(gr.read_docs(docs), path)
    assert encode_index(index, model.saved).encoded == 12

    search = gr.open(path, folder)
    found = search("cat mat", k=2)
    assert found.depth == 12 and found.num_encoded == 0
    assert "additive parts" in str(gr.explain(search, found.query, *found))
    assert gr.Pipeline(index, model, use_store=False)("cat mat").num_encoded == 12

    texts = ["dogs bark at night", "the cat sat on the mat", ""]
    assert gr.rank("where did the cat sit?", texts, model=model, budget_ms=5000).depth == 3

    options = Options(Path(path), (("m", folder),), budget_ms=5000.0)
    prepare_process(options)
    with TestClient(make_app(options), "http://localhost") as client:
        answer = client.get("/search", params={"query": "cat mat"})
        assert answer.status_code == 200 and answer.json()["depth"] == 12, answer.text
        body = {"query": "cat mat", "doc_id": "d1", "change": {"side": "query", "word": "mat"}}
        answer = client.post("/explain", json=body)
        assert answer.status_code == 200, answer.text
        body = {"model": "m", "query": "cat", "documents": ["a cat", "a dog"]}
        answer = client.post("/v2/rerank", json=body)
        assert answer.status_code == 200 and len(answer.json()["results"]) == 2, answer.text

docs, parent, *folders = sys.argv[1:]
for number, folder in enumerate(folders):
    everything(folder, docs, f"{parent}/{number}.index")
index = gr.Index(f"{parent}/0.index")
for ask in (
    lambda: gr.open(index.path, exact=True),
    lambda: gr.load(device="cuda"),
    lambda: encode_index(index, gr.load().saved, dtype="float32"),
):
    try:
        ask()
    except gr.InputError as error:
        print(error)
"""


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    words = " ".join(PIECES[4:12])
    plain = [
        {"id": f"d{n}", "text": f"the cat {words} sat {'on the mat ' * n}", "title": f"cat {n}"}
        for n in range(12)
    ]
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps(doc) + "\n" for doc in plain))
    return path


def run(code: str, *arguments: object, fails: int = 0) -> subprocess.CompletedProcess[str]:
    given = [sys.executable, "-c", WITHOUT + code, *map(str, arguments)]
    ended = subprocess.run(given, capture_output=True, text=True, timeout=200)
    assert ended.returncode == fails, ended.stderr
    return ended


def models(folder: Path) -> list[Path]:
    return [word_model(folder / "words"), piece_model(folder / "model", "kernel_bert")]


@pytest.mark.long
def test_all_that_a_program_does_and_what_needs_it_says_so(docs: Path, tmp_path: Path) -> None:
    said = run(EVERYTHING, docs, tmp_path, *models(tmp_path)).stdout.splitlines()
    assert len(said) == 3
    for sentence in said:
        assert sentence.endswith(": pip install 'glassrank[torch]'"), sentence
        assert "needs PyTorch" in sentence
    assert any(sentence.startswith("the device 'cuda' needs PyTorch") for sentence in said)


def test_the_demo_opens_its_page(tmp_path: Path) -> None:
    code = """
from pathlib import Path

import glassrank as gr
import glassrank.serve
from glassrank.cli import demo

path = Path(sys.argv[1])
gr.Index.build([gr.Doc("a", "how to read a file")], path)
glassrank.serve.serve = lambda options, started: print(*options.pipelines)
demo._serve(path, None, 50.0, 0, quiet=True)
"""
    assert run(code, tmp_path / "python.index").stdout.split() == [
        "fast+default",
        "fast",
        "default",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1], ids=["tk", "kernel_bert"])
def test_all_that_commands_do(place: int, docs: Path, tmp_path: Path) -> None:
    model = models(tmp_path)[place]
    index, page = tmp_path / "made.index", tmp_path / "page.html"
    command, given = "from glassrank.cli import main\nmain()", ("--model", model)
    assert "12 documents" in run(command, "index", docs, "--out", index, *given).stderr
    for more in ((), ("--budget-ms", "5000")):
        found = run(command, "search", index, "cat mat", *given, *more, "--json")
        answer = json.loads(found.stdout)
        assert answer["depth"] == 12 and answer["num_encoded"] == 0
    run(command, "explain", index, "cat mat", "d1", "d2", *given, "--html", page)
    assert "<html" in page.read_text()
    assert run(command, "explain", index, "cat mat", "d1", *given, "--what-if", "mat=dog").stdout
    assert "glassrank[torch]" in run(command, "train", "--example", "tk", fails=1).stderr
