"""`glassrank explain`: a document's score on a terminal, as JSON and as HTML."""

import json
from pathlib import Path

import pytest
import torch
from command_line import DOCS, Call

from glassrank.explanations import Explanation
from glassrank.explanations.structure import format_number
from glassrank.index import Index
from glassrank.models import EmbeddingTable
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import Usage
from glassrank.models.io.torch_files import save_model
from glassrank.rerank import Reranker
from glassrank.research.papers.knrm import KNRM, KNRMConfig

WORDS = ["<pad>", "<unk>", "cheese", "mice", "cats", "the", "sea", "cold", "chase"]
QUERY = "cats chase mice"


@pytest.fixture
def model(files: Path) -> Path:
    torch.manual_seed(0)
    knrm = KNRM(KNRMConfig(size=8), EmbeddingTable(torch.randn(len(WORDS), 8), trained=False))
    knrm.mix_first_stage(0.1)
    save_model(files / "model", knrm, Usage(), WORDS, "# card\n")
    return files / "model"


@pytest.fixture
def score(index: Path, model: Path) -> float:
    """Of the document about dogs, with the first stage's part."""
    first = {hit.doc_id: hit.score for hit in Index(index).search(QUERY)}
    own = Reranker.load(model).scores(QUERY, [DOCS["dogs"]], [first["dogs"]])
    return float(own.values[0])


def test_a_document_is_explained_on_the_terminal(call: Call, score: float) -> None:
    done = call("explain", "my.index", QUERY, "dogs", "--model", "model")
    assert done.returncode == 0, done.stderr
    assert f"score {format_number(score)}" in done.stdout
    assert "Against the mean of the" in done.stdout and "the others" in done.stdout
    assert "chase² cats¹" in done.stdout and "kernel" not in done.stdout  # by query word
    done = call("explain", "my.index", QUERY, "dogs", "--model", "model", "--full")
    assert "first stage" in done.stdout
    assert "chaseᵃ catsᵃ" in done.stdout  # they are in the query: a is the kernel of equal words
    assert "kernel 1.0" in done.stdout and "raw values" in done.stdout


def test_json_is_the_whole_explanation(call: Call, score: float) -> None:
    done = call("explain", "my.index", QUERY, "dogs", "--model", "model", "--json")
    found = Explanation.from_json(json.loads(done.stdout))
    assert found.score == score
    assert found.doc_id == "dogs"
    assert found.parts.value == pytest.approx(score, rel=1e-6)


def test_two_documents_become_one_html_file(
    call: Call, files: Path, index: Path, model: Path
) -> None:
    arguments = ("explain", "my.index", QUERY, "dogs", "fish", "--model", "model")
    done = call(*arguments, "--html", "why.html")
    assert done.returncode == 0, done.stderr
    page = (files / "why.html").read_text("utf-8")
    assert page.count("<article>") == 2
    assert "Left minus right" in page
    done = call(*arguments, "--json")
    both = json.loads(done.stdout)
    assert (both["left"]["doc_id"], both["right"]["doc_id"]) == ("dogs", "fish")
    # The document about fish has no word of the query: the first stage gives it nothing.
    first = [part for part in both["right"]["rest"] if part["name"] == "first stage"]
    assert [part["value"] for part in first] == [0.0]


def test_what_if_shows_how_the_document_moves(call: Call, index: Path, model: Path) -> None:
    arguments = ("explain", "my.index", QUERY, "fish", "--model", "model", "--what-if")
    done = call(*arguments, "sea=cheese", "--json")
    answer = json.loads(done.stdout)
    assert answer["text"] == "Fish swim in the cold cheese."
    assert answer["doc_ids"][answer["doc"]] == "fish"
    moved = answer["moved"][answer["doc"]]
    done = call(*arguments, "sea=cheese")
    assert (
        f"{format_number(moved['score_before'])} -> {format_number(moved['score_after'])}"
        in done.stdout
    )
    assert f"rank {moved['rank_before']} -> {moved['rank_after']} of 4" in done.stdout
    done = call(*arguments, "query:mice")
    assert "query: cats chase " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bats"], "no document of my.index has the id 'bats'"),
        (["dogs", "cats", "fish"], "expected one or two document ids, found 3"),
        (["dogs", "--json", "--html", "x.html"], "give --json or --html"),
        (["dogs", "--what-if", "cats", "--html", "x.html"], "--what-if has no HTML form"),
        (["dogs", "--what-if", "zebra"], "the document has no word 'zebra'"),
        (["dogs", "--what-if", "=cat"], "--what-if takes WORD"),
    ],
)
def test_mistakes_are_named(
    call: Call, index: Path, model: Path, arguments: list[str], message: str
) -> None:
    done = call("explain", "my.index", QUERY, *arguments, "--model", "model")
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.long
def test_what_is_explained_is_the_score_that_search_lists(call: Call, index: Path) -> None:
    """From the store, whose words are rounded; live; and exactly. Each says what it is."""
    said = {}
    for way, more in (("live", ()), ("exact", ("--exact",)), ("stored", ())):
        if way == "stored":
            done = call("encode", "my.index", "--model", "default", "--dtype", "int8")
            assert done.returncode == 0, done.stderr
        options = ("--model", "default", "--json", *more)
        listed = json.loads(call("search", "my.index", QUERY, *options).stdout)["hits"]
        scores = []
        for hit in listed:
            found = json.loads(call("explain", "my.index", QUERY, hit["doc_id"], *options).stdout)
            scores.append(found["score"])
            said[way] = [note for note in found["notes"] if "This explains the" in note]
        assert scores == pytest.approx([hit["score"] for hit in listed], abs=2e-5)
    assert len(listed) == 4  # three have the words, and vectors find the other
    assert "unrounded" in said["exact"][0] and "store" in said["stored"][0]
    assert said["live"] == [] or "rounded for speed" in said["live"][0]


def test_the_first_stage_is_the_one_that_the_model_was_trained_on(
    call: Call, index: Path, files: Path, model: Path
) -> None:
    own = load_model(model)
    save_model(files / "ql", own.model, Usage(first_stage="ql(mu=50)"), WORDS, "# card\n")
    for more in ((), ("--method", "bm25")):
        options = ("--model", "ql", "--json", *more)
        listed = json.loads(call("search", "my.index", QUERY, *options).stdout)
        assert listed["method"] == (more[1] if more else "ql(mu=50)")
        best = listed["hits"][0]
        found = json.loads(call("explain", "my.index", QUERY, best["doc_id"], *options).stdout)
        assert found["score"] == pytest.approx(best["score"], abs=1e-5)
