"""The demo's page, and its judged questions, which are measured behind it."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import glassrank.serve
from glassrank.cli import demo
from glassrank.cli.demo import MODELS, NAMES, DemoReports, make_reports
from glassrank.corpus import PYTHON_QUESTIONS, SAMPLE_QUERIES, read_qrels
from glassrank.embeddings import Store, encode_index
from glassrank.embeddings.doc_encoder import DocEncoder
from glassrank.embeddings.manifest import default_store_folder, list_stores
from glassrank.embeddings.writer import open_store_writer
from glassrank.index import Index
from glassrank.models.io.load import load_for_inference
from glassrank.models.io.model_folder import fingerprint
from glassrank.rerank import load
from glassrank.serve import Options
from glassrank.types import Doc, Ranking

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


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the demo does around its page, which is up at once."""
    said: list[object] = []

    def serve(options: Options, started: Callable[[str], None]) -> None:
        said.append(options)
        started("http://127.0.0.1:8000/")

    monkeypatch.setattr(glassrank.serve, "serve", serve)
    monkeypatch.setattr(DemoReports, "start", lambda self: said.append("encoding"))
    monkeypatch.setattr(DemoReports, "stop", lambda self: said.append("stopped"))
    return said


def test_the_page_gets_questions_a_subject_and_stores_and_reports_after_it_is_up(
    index: Path, steps: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    demo._serve(index, "bm25", 50.0, 0, quiet=False)
    options, *rest = steps
    assert isinstance(options, Options)
    assert rest == ["encoding", "stopped"], "never before the page is up, never after it"
    assert "results get deeper" in capsys.readouterr().err
    assert not list_stores(index), "nobody has waited for a store"
    assert len(SAMPLE_QUERIES) == 6 and options.samples == SAMPLE_QUERIES
    assert "documentation of Python 3." in options.subject
    assert options.reports_pending
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


@pytest.mark.long
def test_something_is_missing_until_both_stores_and_the_reports_are_whole(
    index: Path, steps: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    models = [load_for_inference(name) for name in MODELS]
    reports = DemoReports(index, [fingerprint(saved.model) for saved in models])
    assert DemoReports(index, ["e" * 32]).folder != reports.folder
    reports.folder.mkdir()
    for path in reports.paths():
        path.write_text("{}")
    opened = Index(index)
    for saved in models:
        assert reports.missing()
        layout = DocEncoder(saved, "int8", "cpu", "s2", "").layout
        with open_store_writer(default_store_folder(index, layout), layout, opened.snapshot):
            pass  # as it is when the work has just begun
        assert reports.missing()
        encode_index(opened, saved)
    assert not reports.missing()
    demo._serve(index, None, 50.0, 0, quiet=False)
    assert steps[1:] == ["stopped"]
    assert "deeper" not in capsys.readouterr().err
    reports.paths()[0].unlink()
    assert reports.missing()


def state_of(process: subprocess.Popen[bytes]) -> str:
    """As Linux has it: T is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="how processes are is Linux's")
def test_measuring_waits_while_somebody_searches(tmp_path: Path) -> None:
    reports = DemoReports(tmp_path / "an.index", ["f" * 32])
    reports.pause()  # nothing runs yet, and nothing happens
    process = reports._process = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def reach(wanted: bool) -> None:
        end = time.monotonic() + MOST_SECONDS
        while (state_of(process) == "T") is not wanted:
            assert time.monotonic() < end
            time.sleep(0.01)

    try:
        reports.pause(seconds=60)
        reach(True)
        reports.pause(seconds=0.01)  # the last search says from when on it is quiet
        reach(False)
        reports.pause(seconds=60)
        reach(True)
        reports.stop(MOST_SECONDS)  # one that is paused ends all the same
        assert process.poll() is not None
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stopped", "left alone"])
def test_whoever_measures_ends_with_the_demo_and_leaves_nothing_half_written(
    index: Path, way: str
) -> None:
    reports = DemoReports(index, ["f" * 32])
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


@pytest.mark.long
def test_answers_come_before_documents_are_encoded_and_later_ones_use_the_store(
    index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer() -> tuple[str, str]:
        demo._answer(index, ["read a file"], None, 5000.0, 1, quiet=False)
        return capsys.readouterr()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("glassrank.cli.encode.encode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            answer()
    said = capsys.readouterr()
    assert "Ask your own" in said.out, "whoever ends the encoding has the answers"
    assert "re-ranked 0" not in said.out, "the first query is re-ranked live"
    first = answer()
    assert "then come deeper ones" in first[1] and "with stored documents" in first[1]
    assert first[0].count("Ask your own") == 2
    live, stored = (int(n) for n in re.findall(r"re-ranked (?:all )?([\d,]+)", first[0]))
    assert 0 < live <= stored
    store = Store.find(Index(index), load("fast").model)
    assert store is not None and not store.count_missing(Index(index).snapshot)
    ranked: list[Ranking] = []
    monkeypatch.setattr("glassrank.cli.search.show", lambda index, found: ranked.append(found))
    assert "encoded" not in answer()[1]
    assert ranked[0].depth > 1
    assert ranked[0].hits[0].doc_id in first[0]
