"""The demo's page, and its judged questions, which are measured behind it."""

import json
import time
from pathlib import Path

import pytest

import glassrank.serve
from glassrank.checked import write_checked
from glassrank.cli import demo
from glassrank.cli.demo import MODELS, NAMES, DemoReports, make_reports
from glassrank.cli.encode import encode
from glassrank.corpus import PYTHON_QUESTIONS, SAMPLE_QUERIES, read_qrels
from glassrank.folders import Folder
from glassrank.models.checkpoint import load_named
from glassrank.ranking import load
from glassrank.retrieve import Index
from glassrank.serve import Options
from glassrank.store import Store, encode_index
from glassrank.types import Doc

MOST_SECONDS = 120.0


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """The answers alone, with their names as texts: enough for every part to have work."""
    qrels = read_qrels(PYTHON_QUESTIONS / "qrels.txt")
    answers = {doc: None for grades in qrels.values() for doc in grades if grades[doc] == 2}
    docs = (
        Doc(doc, f"{doc.replace('.', ' ')} reads a file, a list and a string") for doc in answers
    )
    Index.build(docs, tmp_path / "python.index")
    return tmp_path / "python.index"


def test_the_page_gets_questions_a_subject_and_reports_after_it_is_up(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []

    def serve(options: Options, started: object) -> None:
        said.append(options)
        assert callable(started)
        started("http://127.0.0.1:8000/")

    monkeypatch.setattr(glassrank.serve, "serve", serve)
    monkeypatch.setattr(DemoReports, "start", lambda self: said.append("measuring"))
    monkeypatch.setattr(DemoReports, "stop", lambda self: said.append("stopped"))
    demo._serve(index, "bm25", 50.0, 0, quiet=True)
    options, *rest = said
    assert isinstance(options, Options)
    assert rest == ["measuring", "stopped"], "never before the page is up, never after it"
    assert len(SAMPLE_QUERIES) == 6 and options.samples == SAMPLE_QUERIES
    assert "documentation of Python 3." in options.subject
    assert options.reports_follow
    assert next(iter(options.pipelines.values())) == ("fast", "default")
    assert options.clusters is not None and options.clusters.parent.parent == index.parent


@pytest.mark.slow
def test_reports_are_those_of_the_commands(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_DEPTH", 4)
    monkeypatch.setattr(demo, "_REPEATS", 1)
    make_reports(index, tmp_path / "reports")
    clusters, budget = (json.loads((tmp_path / "reports" / name).read_text()) for name in NAMES)
    assert 0 < clusters["all"]["queries"] <= 60
    assert budget["queries"] == 60 and next(iter(budget["first_stage"])) == "nDCG@10"
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == sorted(NAMES)
    for model in MODELS:
        assert Store.find(Index(index), load(model).model) is not None


def test_nothing_is_started_where_all_is_there(index: Path) -> None:
    reports = DemoReports(index, "f" * 32)
    assert DemoReports(index, "e" * 32).folder != reports.folder
    assert reports.missing()
    encode(index, "default", quiet=True)
    assert reports.missing()
    reports.folder.mkdir()
    for path in reports.paths():
        path.write_text("{}")
    reports.start()
    assert reports._process is None
    reports.stop()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stopped", "left alone"])
def test_whoever_measures_ends_with_the_demo_and_leaves_nothing_half_written(
    index: Path, way: str
) -> None:
    reports = DemoReports(index, "f" * 32)
    reports.start()
    process = reports._process
    assert process is not None and process.stdin is not None
    try:
        end = time.monotonic() + MOST_SECONDS
        while not list(reports.folder.glob(".making-*/*")):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.02)
        if way == "stopped":
            reports.stop(MOST_SECONDS)
        else:
            process.stdin.close()  # as the system does for a demo that was killed
            process.wait(MOST_SECONDS)
        assert process.returncode == 1
        for path in reports.folder.iterdir():
            assert path.name in NAMES
            json.loads(path.read_text())
    finally:
        process.kill()


def test_a_store_of_an_earlier_version_is_made_again(tmp_path: Path) -> None:
    index = Index.build([Doc("a", "how to read a file")], tmp_path / "index")
    encode_index(index, load_named("fast"))
    (path,) = (tmp_path / "index" / "stores").iterdir()
    body = json.loads((path / "store.json").read_text())["body"]
    with Folder.open(path) as folder:
        write_checked(folder, "store.json", {**body, "format": 1})
    demo._encode(index, quiet=True)
    store = Store.find(index, load("fast").model)
    assert store is not None
    assert store.lacks(index.snapshot) == 0
