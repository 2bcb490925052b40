"""A killed writer leaves the index as it was before or as it is after."""

from pathlib import Path

import pytest
from child_processes import run_script
from reliability import Recorder

KILLED = "SIGKILL of a writer of an index", "the old state or the new"


def kills(folder: Path, *trials: str) -> list[int]:
    return [int(line) for line in run_script("index/killed_writer.py", folder, *trials).split()]


@pytest.mark.long
def test_a_killed_writer_leaves_a_whole_index(tmp_path: Path, reliability: Recorder) -> None:
    trials = "at_random_moments:6", "at_every_sync:2", "while_building:26"
    killed = kills(tmp_path, *trials)
    assert len(killed) == len(trials)
    reliability("Files", *KILLED, sum(killed))


@pytest.mark.slow
@pytest.mark.parametrize("trial", ["at_random_moments:60", "at_every_sync:30"])
def test_many_killed_writers_do_too(tmp_path: Path, trial: str, reliability: Recorder) -> None:
    reliability("Files", *KILLED, sum(kills(tmp_path, trial)))
