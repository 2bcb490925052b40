"""`glassrank index --add` on an index with stores: what they lack is said, or encoded."""

import json
import warnings
from pathlib import Path

import pytest
from command_line import Call
from test_encode import model as model_folder

from glassrank.cli.search import timing_line
from glassrank.index import Index
from glassrank.rerank import BudgetWarning
from glassrank.types import Ranking

model = model_folder


@pytest.fixture(autouse=True)
def more(files: Path) -> None:
    (files / "more.tsv").write_text("birds\tBirds chase mice.\nbees\tBees chase nobody.\n")


def said(text: str) -> str:
    return " ".join(text.split())


def encode(call: Call, *options: str) -> None:
    assert call("encode", "my.index", "--model", "model", *options).returncode == 0


def search(call: Call) -> dict:
    done = call("search", "my.index", "chase mice", "--model", "model", "--json")
    assert done.returncode == 0, done.stderr
    found: dict = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ((), "glassrank encode my.index --model model"),
        (("--dtype", "bf16"), "glassrank encode my.index --model model --dtype bf16"),
        (("--name", "mine"), "glassrank encode my.index --model model --name mine"),
    ],
)
@pytest.mark.long
def test_the_command_is_said_and_does_it(
    call: Call, index: Path, model: Path, options: tuple[str, ...], command: str
) -> None:
    encode(call, *options)
    done = call("index", "more.tsv", "--out", "my.index", "--add")
    assert "lacks 2 documents; store them with: " in said(done.stderr)
    assert command.replace("model model", "model MODEL") in said(done.stderr)
    shown = call("search", "my.index", "chase mice", "--model", "model")
    assert "2 documents were encoded on the fly; my.index/stores/" in said(shown.stderr)
    assert said(shown.stderr).endswith(command)
    assert search(call)["num_encoded"] == 2
    assert call(*command.split()[1:]).returncode == 0
    assert search(call)["num_encoded"] == 0
    assert "lacks" not in call("search", "my.index", "chase mice", "--model", "model").stderr


def test_a_search_without_a_store_says_what_takes_long(
    call: Call, files: Path, index: Path, model: Path
) -> None:
    advice = "encoded on the fly; store them with: glassrank encode my.index --model model"
    shown = said(call("search", "my.index", "chase mice", "--model", "model").stderr)
    assert shown.endswith(advice) and "minutes" not in shown
    (files / "many.tsv").write_text("".join(f"d{n}\tBirds chase mice.\n" for n in range(300)))
    assert call("index", "many.tsv", "--out", "many.index").returncode == 0
    asked = "search", "many.index", "chase mice", "--model", "model"
    first, *_, last = call(*asked).stderr.splitlines()
    assert "up to 300 documents are encoded now, which may take minutes" in first
    assert "glassrank encode many.index --model model" in first
    assert last.startswith("300 documents were encoded on the fly")
    assert "minutes" not in call(*asked, "--budget-ms", "500").stderr


@pytest.mark.parametrize("options", [(), ("--dtype", "int8"), ("--name", "mine")])
def test_with_a_model_its_stores_are_brought_up_to_date(
    call: Call, index: Path, model: Path, options: tuple[str, ...]
) -> None:
    encode(call, *options)
    before = sorted(path.name for path in (index / "stores").iterdir())
    done = call("index", "more.tsv", "--out", "my.index", "--add", "--encode", "--model", "model")
    assert done.returncode == 0 and "(2 encoded and 4 copied in" in said(done.stderr)
    assert "lacks" not in done.stderr
    assert sorted(path.name for path in (index / "stores").iterdir()) == before
    assert search(call)["num_encoded"] == 0


def test_a_merge_needs_none(call: Call, index: Path, model: Path) -> None:
    encode(call)
    done = call("index", "--out", "my.index", "--delete", "fish", "--merge")
    assert done.returncode == 0 and "lacks" not in done.stderr
    assert search(call)["num_encoded"] == 0


def test_stores_of_other_models_are_not_guessed_at(call: Call, index: Path, model: Path) -> None:
    encode(call)
    done = call("index", "more.tsv", "--out", "my.index", "--add", "--encode")
    assert done.returncode == 2 and "name the model with --model" in said(done.stderr)
    assert len(Index(index)) == 4  # said before the work


def test_a_store_that_is_damaged_does_not_spoil_the_change(
    call: Call, index: Path, model: Path
) -> None:
    encode(call)
    (index / "stores" / "tk-int8" / "store.json").write_text("{}")
    done = call("index", "more.tsv", "--out", "my.index", "--add", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lacking"] == {}


def test_an_id_that_is_there_names_replace(call: Call, index: Path, files: Path) -> None:
    (files / "more.tsv").write_text("birds\tBirds chase mice.\ncats\tCats again.\n")
    done = call("index", "more.tsv", "--out", "my.index", "--add")
    assert done.returncode == 2
    assert "more.tsv:2: document id 'cats' is in the index already; use --replace" in said(
        done.stderr
    )
    assert call("index", "more.tsv", "--out", "my.index", "--add", "--replace").returncode == 0


def test_what_time_did_not_suffice_for_is_told(
    call: Call, index: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode(call)
    whole = call("search", "my.index", "chase mice", "--model", "model")
    assert "re-ranked 3 in " in said(whole.stderr)
    assert said(whole.stderr).strip().endswith("), without warm-up")
    monkeypatch.setattr("glassrank.rerank.scheduler._next_count", lambda *_: 0)
    with warnings.catch_warnings():
        warnings.simplefilter("default", BudgetWarning)
        late = call("search", "my.index", "chase mice", "--model", "model", "--budget-ms", "50")
    assert "warning: nothing could be re-ranked in 50 ms" in said(late.stderr)
    assert "re-ranked 0 of 3 (budget exhausted at depth 0) in " in said(late.stderr)
    assert "without warm-up" not in late.stderr


def test_files_that_are_no_documents_are_named(call: Call, files: Path) -> None:
    folder = files / "pages"
    folder.mkdir()
    for name in ("a.txt", "b.html", "c.html"):
        (folder / name).write_text("Cats chase mice.")
    done = call("index", "pages", "--out", "new.index")
    assert "skipped 2 files of unknown formats (2 .html)" in said(done.stderr)


def test_a_cascade_tells_how_deep_each_model_came() -> None:
    timing = {"scoring": 3.0, "total": 3.5}

    def line(*depths: int, cut_short: bool) -> str:
        ranking = Ranking("cat", (), max(depths), timing, 900, depths, cut_short)
        return timing_line(ranking).partition(" in ")[0]

    assert line(900, 12, cut_short=True) == "re-ranked 900, then the best 12 of them again"
    assert line(900, cut_short=False) == "re-ranked 900"
    assert line(40, 0, cut_short=True) == "re-ranked 40 of 900 (budget exhausted at depth 40)"
