"""The adapters' tests and examples where all of the packages are, in a folder of their own."""

import platform
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

sys.path.append(str(Path(__file__).parents[1]))
from packages_apart import run_beside, write_pins

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]


@pytest.mark.slow
def test_every_adapter_with_its_real_package(tmp_path: Path) -> None:
    """But PyTerrier where it cannot be installed: its `pytrec-eval-terrier` has no ARM binary."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [name for extra in Requirement(*extras["adapters"]).extras for name in extras[extra]]
    pins = ["--constraint", str(write_pins(tmp_path / "pins.txt"))]
    printed = run_beside([*pins, "langchain-classic", *named], tmp_path, str(HERE))
    skipped = [line for line in printed.splitlines() if line.startswith("SKIPPED")]
    assert all("pyterrier" in line for line in skipped), skipped
    assert not skipped or platform.machine() != "x86_64"
