"""`scripts/setup` on machines that lack something: one sentence that says what to install."""

import os
import re
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def run_setup(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """In a copy with no .venv, on a machine whose only Python is this shell script."""
    (folder / "scripts").mkdir()
    for name in ("scripts/setup", "scripts/requirements", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    tools = folder / "bin"
    tools.mkdir()
    for name in ("sh", "cat", "cksum", "dirname", "env", "grep"):
        (tools / name).symlink_to(shutil.which(name) or "")
    fake = tools / "python3"
    fake.write_text(f"#!/bin/sh\n{python}\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    return subprocess.run(
        [str(folder / "scripts" / "setup")],
        env={"PATH": str(tools), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_old_python_gets_one_sentence(tmp_path: Path) -> None:
    done = run_setup(tmp_path, "exit 1")  # every check of its version fails
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "needs Python 3.11 or newer" in done.stderr


def test_a_missing_venv_module_gets_one_sentence(tmp_path: Path) -> None:
    done = run_setup(tmp_path, 'case "$2" in *venv*) exit 1;; esac; exit 0')
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "apt install python3-venv" in done.stderr


def test_the_scripts_can_be_run() -> None:
    for name in (
        "scripts/setup",
        "scripts/requirements",
        "scripts/demo",
        "scripts/test",
        "scripts/reliability",
        "scripts/wheel",
        ".ci/run",
    ):
        assert os.access(ROOT / name, os.X_OK), name


def test_every_pinned_package_has_hashes() -> None:
    """All but PyTorch, of which there are several builds."""
    blocks = (ROOT / "constraints.txt").read_text("utf-8").split("\n# for: ")[1:]
    assert len(blocks) > 150
    without = [block.splitlines()[1] for block in blocks if "--hash=sha256:" not in block]
    assert [pin.partition("==")[0] for pin in without] == ["torch"]


def test_what_is_needed_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for extra in ("base", "test"):
        printed = subprocess.run(
            [str(ROOT / "scripts" / "requirements"), extra], capture_output=True, text=True
        ).stdout
        pinned = set(re.findall(r"^([a-z0-9-]+)==", printed, re.MULTILINE)) | {"torch"}
        wanted = project["dependencies"]
        if extra == "test":
            wanted = [*wanted, *project["optional-dependencies"]["test"]]
        assert {canonicalize_name(Requirement(each).name) for each in wanted} <= pinned
