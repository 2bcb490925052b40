"""Everything at once against a real service, and what holds when it is over: benchmarks/soak.py."""

import sys
from pathlib import Path
from typing import Any

import pytest
from reliability import Recorder
from small_service import tiny_tk

from glassrank.models.io.torch_files import save_model

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from soak import arguments, soak

HELD = "nothing acknowledged was lost, rankings as in a serial replay"


def soaked(folder: Path, *given: str) -> dict[str, Any]:
    saved = tiny_tk()
    save_model(folder / "model", saved.model, saved.usage, saved.vocabulary, "# card\n")
    (folder / "soak").mkdir()
    report = soak(arguments(["--model", str(folder / "model"), *given]), folder / "soak")
    assert report["faults"] == []
    return report


@pytest.mark.slow
def test_a_service_under_a_little_of_everything(tmp_path: Path, reliability: Recorder) -> None:
    report = soaked(
        tmp_path, "--seconds", "2", "--workers", "1", "--kill-writer", "2", "--attackers", "20"
    )
    assert report["writers killed"] >= 1 and report["deleted"] >= 2
    reliability("Standing", "answers beside changes and kills", HELD, report["answers"].total())


@pytest.mark.slow
def test_a_service_under_everything(tmp_path: Path, reliability: Recorder) -> None:
    report = soaked(tmp_path, "--seconds", "25", "--kill-every", "10", "--kill-writer", "10")
    assert report["writers killed"] >= 2 and report["workers killed"] >= 1
    reliability("Standing", "answers beside changes and kills", HELD, report["answers"].total())
    kills = report["writers killed"] + report["workers killed"]
    reliability("Standing", "SIGKILL of writers and workers under load", HELD, kills)
    if report["growth MB"] is not None:  # a busy machine makes too few changes to tell
        reliability("Standing", "memory of a worker over the time of a soak", "flat")
