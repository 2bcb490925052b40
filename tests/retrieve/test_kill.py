"""A killed writer leaves the index as it was before or as it is after."""

from pathlib import Path

import pytest
from index_files import run_script
from reliability import Recorder


@pytest.mark.parametrize(
    ("moments", "times"), [("at_random_moments", 6), ("at_every_sync", 2), ("while_building", 26)]
)
def test_a_killed_writer_leaves_a_whole_index(
    tmp_path: Path, moments: str, times: int, reliability: Recorder
) -> None:
    kills = run_script("killed_writer.py", moments, tmp_path / "index", str(times))
    reliability("Files", "SIGKILL of a writer of an index", "the old state or the new", int(kills))


@pytest.mark.slow
@pytest.mark.parametrize(("moments", "times"), [("at_random_moments", 60), ("at_every_sync", 30)])
def test_many_killed_writers_do_too(
    tmp_path: Path, moments: str, times: int, reliability: Recorder
) -> None:
    kills = run_script("killed_writer.py", moments, tmp_path / "index", str(times))
    reliability("Files", "SIGKILL of a writer of an index", "the old state or the new", int(kills))
