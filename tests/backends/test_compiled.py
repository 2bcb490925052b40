"""Compiled functions: each for one type of arrays, and kept wherever there is a place for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassrank import Doc, Index
from glassrank.backends import compiled
from glassrank.backends.compiled import FUNCTIONS, Compiled
from glassrank.cli.warmup import compile_modules
from glassrank.index import packed_postings, scoring, segment_checks

SMALL = """
import sys
from glassrank.backends.compiled import compiled, on_compile

@compiled
def add(a, b):
    return a + b

heard = []
on_compile(heard.append)
assert add(2, 3) == 5 and add(3, 4) == 7
print(*heard)
"""

EVERYTHING = """
import sys
import numpy as np
import glassrank as gr
from glassrank.cli.warmup import compile_all
from glassrank.backends.compiled import FUNCTIONS
from glassrank.embeddings import Store, encode_index, store_folder

def kinds():
    kept = [f for f in FUNCTIONS if not f.inner]
    return {f"{f.__module__}.{f.__name__}": len(f.dispatcher.signatures) for f in kept}

compile_all()
before = kinds()
assert all(before.values()), before
model = gr.load()
for times in (3, 700, 90_000):
    docs = [gr.Doc(f"d{i}", f"{'cat ' * times if i == 4 else 'bird'} number {i}") for i in range(9)]
    path = f"{sys.argv[1]}/{times}.index"
    made = gr.Index.build(docs, path)
    for index in (made, gr.Index(path), gr.Index(path, verify=False)):
        for method in ("bm25", "ql", "bm25+rm3", "bm25(rounded=1)", "ql(rounded=1)+rm3"):
            index.search("cat number 5", method=method)
        index.retrieve([gr.Query(str(n), "bird cat") for n in range(70)])
        index.search("the of")
    made.delete(["d1", "d2"])
    made.add([gr.Doc("x", "cat " * 300)])
    made.search("number cat")
    made.add([gr.Doc("d2", "cat dog")], replace=True)
    gr.Index(path).search("cat")
    made.merge()
    for dtype in ("bf16", "int8", "float32", "float16", "int3"):
        store_path = store_folder(made.path, dtype)
        encode_index(made, model.saved, store_path, dtype)
        store = Store.open(store_path, model.model, made.snapshot)
        gr.Pipeline(made, model, store=store, budget_ms=100)("where is the cat", 3)
    gr.Pipeline(made, model, use_store=False, budget_ms=100)("where is the cat", 3)
gr.rank("cat", ["a cat", "a dog", ""])
after = kinds()
assert after == before, {name: (before[name], n) for name, n in after.items() if n != before[name]}
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=600,
    )


def kinds(function: Compiled) -> int:
    return len(function.dispatcher.signatures)


def test_counts_of_any_size_and_deleted_documents_are_searched_by_the_same_code(
    tmp_path: Path,
) -> None:
    for times in (1, 300, 70_000):
        index = Index.build([Doc("a", "cat " * times), Doc("b", "dog")], tmp_path / str(times))
        index.search("cat")
        index.delete(["b"])
        Index(index.path).search("cat", method="ql")
    assert kinds(scoring.search_segment) == 1
    assert kinds(packed_postings.unpack_postings) == kinds(packed_postings.postings_are_valid) == 1
    assert kinds(segment_checks._count) == kinds(segment_checks._ascend) == 1


@pytest.mark.slow
def test_nothing_is_compiled_that_the_setup_has_not_compiled(tmp_path: Path) -> None:
    done = run("-c", EVERYTHING, str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_every_compiled_function_is_declared_in_one_way() -> None:
    package = Path(__file__).parents[2] / "glassrank"
    for path in package.rglob("*.py"):
        if path.name not in ("compiled.py", "code_cache.py"):
            assert "cache=True" not in path.read_text("utf-8"), path
    assert FUNCTIONS


class Machine:
    """Where the package and the home cannot be written to, not even by root."""

    def __init__(self, folder: Path) -> None:
        self.module = folder / "package" / "small.py"
        self.module.parent.mkdir()
        self.module.write_text(SMALL)
        (self.module.parent / "__pycache__").touch()
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.own = self.temporary / f"glassrank-compiled-{os.getuid()}"

    def compiles(self, **more: str) -> bool:
        """Runs it; whether it had to compile."""
        places = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "", "NUMBA_CACHE_DIR": ""}
        done = run(str(self.module), **places, TMPDIR=str(self.temporary), **more)
        assert done.returncode == 0, done.stderr
        return done.stdout.split() == ["add"]


@pytest.mark.long
def test_without_a_home_or_package_to_write_to_code_is_kept_in_a_temporary_folder(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    assert machine.compiles()
    assert machine.own.stat().st_mode & 0o777 == 0o700
    assert not machine.compiles()
    assert not Path("/nonexistent").exists()
    # What is damaged there is compiled again, and kept.
    for path in machine.own.rglob("*.nb?"):
        path.write_bytes(path.read_bytes()[:20])
    assert machine.compiles()
    assert not machine.compiles()
    # Where others may write to it, it is neither read nor written.
    machine.own.chmod(0o777)
    assert machine.compiles()
    assert machine.compiles()


def test_code_that_somebody_else_left_beside_the_package_is_used(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (machine.module.parent / "__pycache__").unlink()
    assert machine.compiles()
    assert list((machine.module.parent / "__pycache__").glob("*.nbc"))
    assert not machine.own.exists()
    assert not machine.compiles()


@pytest.mark.slow
def test_a_read_only_package_without_a_home_is_searched(tmp_path: Path) -> None:
    """The real one: its folders of compiled code are files here, so that nobody can write there."""
    package = Path(__file__).parents[2] / "glassrank"
    for path in package.rglob("*.py"):
        copy = tmp_path / "glassrank" / path.relative_to(package)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
        (copy.parent / "__pycache__").touch()
    index = tmp_path / "my.index"
    Index.build([Doc("a", "a cat"), Doc("b", "a dog")], index)
    done = run(
        "-c",
        "from glassrank.cli import main; main()",
        *("search", str(index), "cat", "--method", "ql"),
        HOME="/nonexistent",
        XDG_CACHE_HOME="",
        NUMBA_CACHE_DIR="",
        TMPDIR=str(tmp_path),
        PYTHONPATH=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "a cat" in done.stdout
    assert done.stderr.count("Compiling") == 1


def test_bytecode_is_there_even_where_python_writes_none(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text("x = 1\n")
    importing = "import os, small; print(os.stat(small.__cached__).st_size > 0)"
    path = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    assert "No such file" in run("-c", importing, **path).stderr
    compile_modules(tmp_path)
    assert run("-c", importing, **path).stdout == "True\n"


def test_a_program_that_compiles_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Through `logging`, whose warnings are on stderr unless somebody has set it up."""
    compiled._warn_once.cache_clear()
    monkeypatch.setattr(compiled, "_listeners", [])
    compiled._notify("one")
    compiled._notify("two")
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("glassrank", "WARNING")
    ]
    assert "glassrank warmup" in caplog.text
    heard: list[str] = []
    compiled.on_compile(heard.append)
    compiled._notify("three")
    assert heard == ["three"] and len(caplog.records) == 1  # a command tells it in its own way
