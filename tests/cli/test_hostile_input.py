"""What strangers hand to the commands: one sentence and an exit status, never a traceback."""

import errno
import os
from pathlib import Path

import pytest
from command_line import Call
from reliability import Recorder

CONFIG = """
model = "knrm"
out = "out"
prepared = "prepared"

[[collections]]
name = "c"
docs = "docs.tsv"
train_queries = "queries.tsv"
train_qrels = "qrels.txt"
"""

CONFIGS: dict[str, bytes] = {
    "not UTF-8": CONFIG.encode() + b"\n# na\xefve\n",
    "UTF-16": CONFIG.encode("utf-16"),
    "a NUL": CONFIG.encode() + b"\0",
    "extends itself": b'extends = "c.toml"\n' + CONFIG.encode(),
    "extends in a circle": b'extends = "other.toml"\n' + CONFIG.encode(),
    "extends a number": b"extends = 1\n" + CONFIG.encode(),
    "extends a list": b'extends = ["a"]\n' + CONFIG.encode(),
    "extends a list of numbers": b"extends = [1]\n" + CONFIG.encode(),
    "extends itself twice": b'extends = ["c.toml", "c.toml"]\n' + CONFIG.encode(),
    "extends a folder": b'extends = "."\n' + CONFIG.encode(),
    "extends nothing": b'extends = ""\n' + CONFIG.encode(),
    "extends a device": b'extends = "/dev/zero"\n' + CONFIG.encode(),
    "extends a pipe": b'extends = "pipe"\n' + CONFIG.encode(),
    "extends a name with a NUL": b'extends = "a\\u0000b"\n' + CONFIG.encode(),
    "extends a long name": b'extends = "' + b"x" * 5000 + b'"\n' + CONFIG.encode(),
    "deep lists": b"config.x = " + b"[" * 100_000,
    "deep tables": b"model" + b".a" * 30_000 + b" = 1\n",
    "deep tables in many lines": b"".join(
        b"[" + b".".join([b"t%d" % n] + [b"a"] * 450) + b"]\n" for n in range(60)
    ),
    "a deep table for a text": b"model" + b".a" * 450 + b" = 1\n" + CONFIG.encode(),
    "many digits": b"seed = " + b"9" * 10_000 + b"\n" + CONFIG.encode(),
    "large number": CONFIG.replace("[[", "seed = 100000000000000000000\n[[", 1).encode(),
    "large float": CONFIG.encode() + b"[optimizer]\nrest = 1" + b"0" * 400,
    "no table": CONFIG.replace("[[", "config = 3\n[[", 1).encode(),
    "a list for a name": CONFIG.replace("[[", "loss = []\n[[", 1).encode(),
    "infinite": CONFIG.encode() + b"[optimizer]\nrest = inf",
    "not a number": CONFIG.encode() + b"[optimizer]\nrest = nan",
    "a NUL in a name": CONFIG.replace("docs.tsv", "docs\\u0000.tsv").encode(),
    "a table for a text": CONFIG.replace('"knrm"', "{a = 1}").encode(),
    "a long key": b"k" * 200_000 + b" = 1\n" + CONFIG.encode(),
    "a long value": CONFIG.replace("knrm", "k" * 200_000).encode(),
    "megabytes": CONFIG.encode() + b"# " + b"x" * 3_000_000,
    "a table over a number": b'extends = "number.toml"\n' + CONFIG.encode() + b"[vectors]\nsize=1",
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_is_refused_in_one_sentence(
    call: Call, files: Path, case: str, reliability: Recorder
) -> None:
    (files / "c.toml").write_bytes(CONFIGS[case])
    (files / "other.toml").write_text('extends = "c.toml"\n')
    (files / "number.toml").write_text("vectors = 3\n[nowhere]\n")
    os.mkfifo(files / "pipe")
    for command in ("prepare", "train"):
        one_sentence(call(command, "c.toml"), 2)
    reliability("Readers", "malformed configs", "one sentence, exit status 2", tries=2)


def test_a_config_that_extends_others_is_read(call: Call, files: Path) -> None:
    """A chain is fine; only what goes on for ever is not."""
    (files / "c0.toml").write_text(CONFIG.replace("knrm", "krnm"))
    for n in range(1, 10):
        (files / f"c{n}.toml").write_text(f'extends = "c{n - 1}.toml"\n')
    done = call("prepare", "c9.toml")
    assert "did you mean 'knrm'?" in done.stderr


def one_sentence(done: object, status: int) -> None:
    code, _, stderr = done  # type: ignore[misc]
    assert code == status, stderr
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert len(stderr) < 2300
    assert "Traceback" not in stderr


@pytest.mark.parametrize("option", ["--html"])
@pytest.mark.parametrize("place", ["nowhere/page.html", "/proc/page.html", "docs.tsv/page.html"])
def test_a_page_that_cannot_be_written(call: Call, index: Path, option: str, place: str) -> None:
    one_sentence(call("explain", "my.index", "cats", "cats", option, place), 1)


def test_a_page_on_a_read_only_disk(
    call: Call, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a disk answers to removing a file that is not there, too."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    plain_open = Path.open
    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, mode="r", *rest, **more: (
            refuse() if "w" in mode else plain_open(path, mode, *rest, **more)
        ),
    )
    done = call("explain", "my.index", "cats", "cats", "--html", "page.html")
    one_sentence(done, 1)
    assert "cannot write page.html: Read-only file system" in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("q.txt", b"<b>", ("retrieve", "my.index", "q.txt", "--out", "x.run")),
        ("q.txt", b"<top><num>" + b" " * 100_000, ("retrieve", "my.index", "q.txt", "--out", "x")),
        ("d.trec", b"<DOC><DOCNO>" + b" " * 100_000 + b"</DOC>", ("index", "d.trec", "--out", "n")),
        ("d.trec", b"<DOC><DOCNO>1</DOCNO>&#" + b"9" * 9999, ("index", "d.trec", "--out", "n")),
        ("j.txt", b"q1 0 cats 9223372036854775808", ("evaluate", "good.run", "j.txt")),
        ("r.run", b"q1 Q0 cats 1 1e999 x", ("evaluate", "r.run", "qrels.txt")),
        ("x" * 3, b"", ("index", "y" * 5000, "--out", "n")),
        ("x" * 3, b"", ("index", "docs.tsv", "--out", "y" * 5000)),
        ("x" * 3, b"", ("search", "y" * 5000, "cat")),
        ("x" * 3, b"", ("index", "docs.tsv/d.tsv", "--out", "n")),
        ("d\x1b[31m.tsv", b"one column", ("index", "d\x1b[31m.tsv", "--out", "n")),
    ],
    ids=lambda value: str(value)[:20].encode("unicode_escape").decode(),
)
def test_input_is_refused_in_one_sentence(
    call: Call, index: Path, files: Path, name: str, content: bytes, command: tuple[str, ...]
) -> None:
    (files / "good.run").write_text("q1 Q0 cats 1 2 base\n")
    (files / name).write_bytes(content)
    done = call(*command)
    assert done.returncode in (1, 2)
    one_sentence(done, done.returncode)
    assert "\x1b" not in done.stderr.replace("\x1b[1;31m", "").replace("\x1b[0m", "")


def test_documents_do_not_steer_the_terminal(call: Call, files: Path) -> None:
    evil = "cat\x1b]0;owned\x07 \x1b[2J\u202egpj.exe"
    (files / "evil.tsv").write_text(f"id\x1b[8m1\t{evil}\t{evil} {evil}\n")
    assert call("index", "evil.tsv", "--out", "evil.index").returncode == 0
    for command in (["search", "evil.index", "cat"], ["search", "evil.index", "cat", "--json"]):
        shown = call(*command).stdout
        assert "cat" in shown
        assert not any(mark in shown for mark in "\x1b\x07\u202e")
