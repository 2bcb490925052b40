"""Tests with packages whose pins do not go with ours: in a folder, found by another process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def run_beside(packages: list[str], folder: Path, *pytest_arguments: str) -> str:
    """What pytest prints where these are installed. Skipped where they cannot be fetched; that they
    do not go together is a failure."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *packages]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        assert "conflict" not in installed.stderr.lower(), installed.stderr
        pytest.skip(f"packages could not be installed: {installed.stderr.strip()[-200:]}")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *pytest_arguments],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def write_pins(file: Path) -> Path:
    """The versions of constraints.txt without hashes: with them, pip wants one of everything."""
    root = Path(__file__).resolve().parents[1]
    pins = re.findall(r"^[\w.-]+==[^\s\\;]+", (root / "constraints.txt").read_text(), re.MULTILINE)
    file.write_text("\n".join(pins))
    return file
