"""What the base install needs has a binary for every system that is meant."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packages_apart import write_pins

ROOT = Path(__file__).resolve().parents[1]
PLATFORMS = {
    "Linux on x86-64": ("manylinux_2_28_x86_64", "manylinux2014_x86_64"),
    "Linux on ARM": ("manylinux_2_28_aarch64", "manylinux2014_aarch64"),
    "macOS on ARM": ("macosx_14_0_arm64", "macosx_11_0_arm64", "macosx_12_0_arm64"),
    "Windows": ("win_amd64",),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLATFORMS)
@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_every_dependency_has_a_binary(name: str, python: str, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    platforms = [part for platform in PLATFORMS[name] for part in ("--platform", platform)]
    command = [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"),
        *(
            "--target",
            str(tmp_path / "target"),
            "--only-binary",
            ":all:",
            "--python-version",
            python,
        ),
        *("--constraint", str(write_pins(tmp_path / "pins.txt")), "--quiet", *platforms),
        *project["dependencies"],
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if "Failed to establish a new connection" in done.stderr:
        pytest.skip("the network is not there")
    assert done.returncode == 0, done.stderr
