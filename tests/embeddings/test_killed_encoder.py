"""Encoding that was killed goes on, and the store is the same to the last bit."""

from pathlib import Path

import pytest
from child_processes import run_script
from reliability import Recorder

KILLED = "SIGKILL while documents are encoded", "gone on with, to the same bytes"


def kills(folder: Path, *trials: str) -> list[int]:
    return [
        int(line) for line in run_script("embeddings/killed_encoder.py", folder, *trials).split()
    ]


@pytest.mark.long
def test_a_killed_encoder_goes_on(tmp_path: Path, reliability: Recorder) -> None:
    trials = "at_syncs:new:7", "at_syncs:changed:7", "at_random:new:3"
    killed = kills(tmp_path / "index", *trials)
    assert all(number >= 2 for number in killed)
    reliability("Files", *KILLED, sum(killed))


@pytest.mark.slow
@pytest.mark.parametrize("start", ["new", "changed"])
def test_it_does_so_at_every_moment(tmp_path: Path, start: str, reliability: Recorder) -> None:
    each, random = kills(tmp_path / "index", f"at_syncs:{start}:1", f"at_random:{start}:40")
    assert each >= 45
    assert random >= 40
    reliability("Files", *KILLED, each + random)
