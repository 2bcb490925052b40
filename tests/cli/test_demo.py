"""The demo's page, and its judged questions, which are measured behind it."""

import json
import time
from pathlib import Path

import pytest

import glassrank.serve
from glassrank.cli import demo, demo_reports
from glassrank.cli.demo_reports import NAMES, DemoReports, make_reports
from glassrank.corpus import PYTHON_QUESTIONS, SAMPLE_QUERIES, read_qrels
from glassrank.ranking import load
from glassrank.retrieve import Index
from glassrank.serve import Options
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
    demo._serve(index, load().model, "bm25", 50.0, 0, quiet=True)
    options, *rest = said
    assert isinstance(options, Options)
    assert rest == ["measuring", "stopped"], "never before the page is up, never after it"
    assert len(SAMPLE_QUERIES) == 6 and options.samples == SAMPLE_QUERIES
    assert "documentation of Python 3." in options.subject
    assert options.reports_follow
    assert options.clusters is not None and options.clusters.parent.parent == index.parent


def test_reports_are_those_of_the_commands(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_reports, "_DEPTH", 4)
    monkeypatch.setattr(demo_reports, "_REPEATS", 1)
    make_reports(index, tmp_path / "reports")
    clusters, budget = (json.loads((tmp_path / "reports" / name).read_text()) for name in NAMES)
    assert 0 < clusters["all"]["queries"] <= 60
    assert budget["queries"] == 60 and next(iter(budget["first_stage"])) == "nDCG@10"
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == sorted(NAMES)


def test_nothing_is_started_where_the_reports_are_there(tmp_path: Path) -> None:
    reports = DemoReports(tmp_path / "python.index", "f" * 32)
    assert DemoReports(tmp_path / "python.index", "e" * 32).folder != reports.folder
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
