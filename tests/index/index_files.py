"""What lies in an index's folder, and processes of their own that use it."""

import os
import subprocess
import sys
from pathlib import Path

import glassrank
from glassrank.index.snapshot import read_manifest

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(glassrank.__file__).parents[1])}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def leftovers(folder: Path) -> set[str]:
    """What the manifest does not name."""
    named = {"manifest.json", "write.lock"}
    for segment in read_manifest(folder).segments:
        named |= {segment.name, *(f"{segment.name}/{name}" for name in segment.files)}
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")} - named


def run_script(name: str, *arguments: str | Path) -> str:
    """The output of a script beside this file; what it complains about fails the test."""
    done = subprocess.run(
        [sys.executable, "-W", "error", HERE / name, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def start(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """A process that runs this code."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env=ENVIRONMENT,
        cwd=HERE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
