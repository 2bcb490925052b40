"""Ray is needed by those who ask for it, and loaded by nobody else."""

import subprocess
import sys
from pathlib import Path

import pytest

from glassrank import Doc, Index

WITHOUT = """
import atexit, sys
sys.modules["ray"] = None  # as if it were not installed
atexit.register(lambda: print("imported", sorted(n for n in sys.modules if n[:4] == "ray.")))
from glassrank.cli import main
main()
"""


def glassrank(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120)


@pytest.mark.long
def test_a_search_neither_needs_nor_loads_ray(tmp_path: Path) -> None:
    Index.build([Doc("a", "a cat on a mat"), Doc("b", "a dog")], tmp_path / "my.index")
    for more in ((), ("--model", "fast")):
        done = glassrank(WITHOUT, "search", tmp_path / "my.index", "cat", *more)
        assert done.returncode == 0, done.stderr
        assert "a cat on a mat" in done.stdout
        assert done.stdout.endswith("imported []\n")
    seen = "import glassrank.serve, glassrank.cluster, sys; print('ray' in sys.modules)"
    assert glassrank(seen).stdout == "False\n"


def test_who_asks_for_it_is_told_what_to_install(tmp_path: Path) -> None:
    Index.build([Doc("a", "a cat")], tmp_path / "my.index")
    (tmp_path / "queries.tsv").write_text("1\tcat\n")
    asked = ("retrieve", tmp_path / "my.index", tmp_path / "queries.tsv", "--ray", "local")
    done = glassrank(WITHOUT, *asked, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "pip install 'glassrank[cluster]'" in done.stderr


def test_a_new_index_alone_is_made_on_a_cluster(tmp_path: Path) -> None:
    Index.build([Doc("a", "a cat")], tmp_path / "my.index")
    changed = ("index", "--out", tmp_path / "my.index", "--delete", "a", "--ray", "local")
    assert "--ray builds a new index only" in glassrank(WITHOUT, *changed).stderr
    assert (
        "--shards needs --ray"
        in glassrank(
            WITHOUT, "index", "x.jsonl", "--out", tmp_path / "new.index", "--shards", 3
        ).stderr
    )
