"""What a user does wrong gets one sentence, the right exit status, and leaves nothing behind."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from command_line import Call

from glassrank.index import Index
from glassrank.types import Doc


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("index", "nowhere.tsv", "--out", "new.index"), "nowhere.tsv does not exist"),
        (("index", "docs.tsv", "--out", "my.index"), "is an index already"),
        (("index", "--out", "my.index"), "nothing to do"),
        (("index", "docs.tsv", "--out", "my.index", "--replace"), "--replace needs --add"),
        (("index", "--out", "my.index", "--delete", "zebra"), "no document has the id 'zebra'"),
        (("index", "docs.tsv", "--out", "my.index", "--delete", "cats"), "needs --add"),
        (("search", "docs.tsv", "cat"), "with: glassrank index docs.tsv --out docs.index"),
        (("serve", "docs.tsv"), "docs.tsv is not an index (it is a file)"),
        (("search", "nowhere", "cat"), "make one with: glassrank index"),
        (("search", "my.index", "cat", "--method", "bm52"), "did you mean bm25?"),
        (("search", "my.index", "cat", "--method", "bm25(k2=1)"), "no parameter 'k2'"),
        (("search", "my.index", "cat", "--k", "0"), "k must be a positive integer"),
        (("evaluate", "qrels.txt", "qrels.txt"), "qrels.txt:1"),
        (("evaluate", "good.run", "qrels.txt", "-m", "nDGC@10"), "nDCG"),
        (("retrieve", "my.index", "docs.csv", "--out", "x.run"), "docs.csv does not exist"),
        (("tune", "my.index", "other.tsv", "qrels.txt"), "no query has a judgment"),
        (("search", "my.index", "cat", "--first-stage", "dense"), "'dense' needs a model"),
        (("search", "my.index", "cat", "--no-adaptive"), "need --model"),
        (("search", "my.index", "cat", "--budget-ms", "5"), "need --model"),
        (("search", "my.index", "cat", "--model", ""), "a model's name is empty"),
        (("search", "my.index", "cat", "--model", "nope"), "or its ORG/NAME on the hub"),
        (("explain", "my.index", " ", "cats"), "the query is empty; expected some words"),
        (("explain", "my.index", "cat", "cats", "--html", ""), "it is a folder; name a file"),
        (("retrieve", "my.index", "queries.tsv", "--out", ""), "expected the name of a file"),
        (("retrieve", "my.index", "queries.tsv", "--out", "no/x.run"), "there is no folder no"),
        (("retrieve", "my.index", "queries.tsv", "--out", "x", "--shards", "2"), "needs --ray"),
        (
            (
                *("rerank", "good.run", "--index", "my.index", "--queries", "queries.tsv"),
                *("--model", "fast", "--out", "no/x.run"),
            ),
            "there is no folder no",
        ),
        (("evaluate", "good.run", "qrels.txt", "--test", "foo"), "need --baseline"),
        (("learn", "my.index", "--out", "docs.tsv"), "docs.tsv is a file, expected a folder"),
        (("learn", "my.index", "--out", "my.index"), "would be lost"),
        (("learn", "my.index", "--out", "new", "--html", "no/x"), "there is no folder no"),
        (("retrieve", "my.index", "latin.tsv", "--out", "x"), "documents (--encoding)"),
        (("serve", "my.index", "--shards", "2"), "--shards needs --ray"),
        (("serve", "my.index", "--api-key-file", "nope"), "nope does not exist"),
        (("serve", "my.index", "--model", "none", "--curves", "nope"), "nope does not exist"),
    ],
)
def test_bad_input_is_one_sentence(
    call: Call, index: Path, files: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (files / "good.run").write_text("q1 Q0 cats 1 2 base\n")
    (files / "other.tsv").write_text("q9\tcat\n")
    (files / "latin.tsv").write_bytes(b"q9\tca\xe9t\n")
    before = {path.name for path in files.iterdir()}
    done = call(*arguments, *(("--quiet",) if arguments[0] == "serve" else ()))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path.name for path in files.iterdir()} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("retrieve", "my.index", "queries.tsv", "--out", "x.run", "--depth", "0"),
        ("retrieve", "my.index", "queries.tsv", "--out", "x.run", "--threads", "0"),
        ("demo", "--once", "--k", "0"),
    ],
)
def test_a_number_out_of_range_is_refused_before_the_work(
    call: Call, index: Path, arguments: tuple[str, ...]
) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert "is not in the range" in done.stderr


def test_a_read_only_folder_is_named_before_the_work(
    call: Call, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode, **_: not mode & os.W_OK)
    monkeypatch.setattr(Index, "retrieve", None)
    done = call("retrieve", str(index), "queries.tsv", "--out", "x.run")
    assert done.returncode == 2
    assert "x.run cannot be written: permission denied; choose a path that you" in done.stderr


def test_a_folder_that_cannot_be_read_is_not_empty(
    call: Call, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    (files / "docs").mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    done = call("index", "docs", "--out", "new.index")
    assert done.returncode == 2
    assert "docs cannot be read: Permission denied" in done.stderr


def test_a_port_that_is_taken_is_one_sentence(call: Call, index: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = call("serve", "my.index", "--model", "none", "--quiet", "--port", port)
    assert done.returncode == 1
    assert f"port {port}: Address already in use; choose another" in done.stderr


@pytest.mark.parametrize("imported", ["numpy", "typer"])
def test_ctrl_c_during_the_imports_leaves_no_trace(tmp_path: Path, imported: str) -> None:
    interrupting = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / f"{imported}.py").write_text(interrupting)
    done = subprocess.run(
        [sys.executable, "-m", "glassrank", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert done.returncode in (-signal.SIGINT, 130)
    assert "Traceback" not in done.stderr
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"glassrank": "glassrank.__main__:main"}


def test_a_change_that_is_refused_has_deleted_nothing(call: Call, index: Path) -> None:
    assert call("index", "docs.tsv", "--out", "my.index", "--delete", "cats").returncode == 2
    assert call("index", "--out", "my.index", "--delete", "cats", "--replace").returncode == 2
    assert len(Index(index)) == 4


def test_a_duplicate_id_names_both_lines(call: Call, tmp_path: Path) -> None:
    (tmp_path / "twice.tsv").write_text("a\tone\nb\ttwo\na\tthree\n")
    done = call("index", "twice.tsv", "--out", "new.index")
    assert done.returncode == 2
    assert "twice.tsv:3 (first at twice.tsv:1)" in done.stderr
    assert not (tmp_path / "new.index").exists()


def test_a_damaged_index_is_named(call: Call, index: Path) -> None:
    victim = next(index.glob("segment-*/texts.data.npy"))
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    done = call("search", "my.index", "cat")
    assert done.returncode == 1
    assert "texts.data.npy is damaged" in done.stderr


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    """Documents come through a pipe that never ends, so the command is surely at work."""
    fifo = tmp_path / "endless.tsv"
    os.mkfifo(fifo)
    program = [sys.executable, "-c", "from glassrank.cli import main; main()"]
    process = subprocess.Popen(
        [*program, "index", "endless.tsv", "--out", "new.index"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    with fifo.open("w") as pipe:
        pipe.write("a\tone\n")
        pipe.flush()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert not (tmp_path / "new.index").exists()


def test_a_warning_is_a_sentence_and_no_line_of_code(tmp_path: Path) -> None:
    Index.build([Doc("a", "Die Häuser haben hohe Preise.")], tmp_path / "de.index", language="de")
    command = [sys.executable, "-m", "glassrank", "search", str(tmp_path / "de.index"), "Haus"]
    done = subprocess.run(
        [*command, "--model", "fast"], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr.startswith("warning: the package's models are English, and the index has ")
    assert ".py" not in done.stderr
