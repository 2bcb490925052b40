"""Scripts and code of tests that run in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import glassrank

TESTS = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(glassrank.__file__).parents[1]),
    "OMP_NUM_THREADS": "1",  # PyTorch's library for ARM counts its threads as it is loaded
}


def run_script(name: str, *arguments: str | Path) -> str:
    """The output of a script among the tests; what it complains about fails the test."""
    done = subprocess.run(
        [sys.executable, "-W", "error", TESTS / name, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def start(code: str, folder: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """A process that runs this code in a folder of the tests."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env=ENVIRONMENT,
        cwd=TESTS / folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
