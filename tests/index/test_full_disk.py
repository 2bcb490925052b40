"""A full disk ends a change with one sentence, and the index is as it was."""

from pathlib import Path

import pytest
from child_processes import run_script


@pytest.mark.tried(
    "Files",
    "kinds of changes on a full disk, at every size",
    "one sentence, nothing lost",
    tries=6,
)
@pytest.mark.long
def test_a_change_that_does_not_fit_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    needed = dict(
        line.split() for line in run_script("index/full_disk.py", tmp_path / "index").splitlines()
    )
    assert needed.keys() == {"add", "replace", "delete", "merge", "overwrite", "build"}
    # Each failed at some limits before it had room: at its arrays, or at the manifest alone.
    assert all(int(limit) >= 2000 for limit in needed.values()), needed
