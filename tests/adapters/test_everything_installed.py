"""The adapters' tests and examples where all of the packages are, in a folder of their own."""

import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
EXTRAS = ("tantivy", "faiss", "postgres", "elasticsearch", "opensearch", "langchain",
          "llamaindex", "haystack", "pyterrier")  # fmt: skip


@pytest.mark.slow
def test_every_adapter_with_its_real_package(tmp_path: Path) -> None:
    """But PyTerrier where it cannot be installed: its `pytrec-eval-terrier` has no ARM binary."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [name for extra in EXTRAS for name in wanted["optional-dependencies"][extra]]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", tmp_path]
    pip += ["--constraint", ROOT / "constraints.txt", "langchain-classic", *named]
    if subprocess.run(pip, capture_output=True, check=False).returncode:
        pytest.skip("the packages could not be installed")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(HERE)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    skipped = [line for line in ran.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("pyterrier" in line for line in skipped), skipped
    assert not skipped or platform.machine() != "x86_64"
