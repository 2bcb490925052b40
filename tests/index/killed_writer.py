"""Kills a writer and looks at the index it leaves, again and again; prints how often. Run by
test_kill.py."""

import os
import random
import sys
from pathlib import Path

from changing_index import FIRST, assert_whole, change, docs_at
from index_files import leftovers

from glassrank.errors import InputError
from glassrank.index import Index

sys.path.append(str(Path(__file__).parents[1]))
from killed import dies_at_sync, killed


def forever(folder: Path) -> None:
    while True:
        change(folder)


def check(folder: Path, generation: int) -> None:
    index = Index(folder, verify=True)
    assert index.generation >= generation
    assert_whole(index)
    change(folder)  # a new writer works, and tidies up
    assert_whole(Index(folder))
    assert not leftovers(folder), leftovers(folder)


def at_random_moments(folder: Path, kills: int) -> int:
    Index.build(FIRST, folder)
    for _ in range(kills):
        generation = Index(folder).generation
        assert killed(lambda: forever(folder), random.uniform(0.01, 0.4))
        check(folder, generation)
    return kills


def at_every_sync(folder: Path, changes: int) -> int:
    """Each change is tried with a death at its first sync, its second, and so on to the end.

    Five take in every kind of change: of two that follow each other, the second is the check's.
    """
    Index.build(FIRST, folder)
    deaths = 0
    for _ in range(changes):
        generation, number = Index(folder).generation, 1
        while killed(dies_at_sync(number, lambda: change(folder))):
            index = Index(folder, verify=True)
            assert_whole(index)
            assert index.generation in (generation, generation + 1)
            deaths += 1
            number += 1
            if index.generation > generation:
                break  # it died after the commit
        check(folder, generation)
    assert deaths > 5 * changes
    return deaths


def while_building(folder: Path, kills: int) -> int:
    """The index is there with all its documents, or it is not there, and may be built again."""
    for number in range(1, kills + 1):
        killed(dies_at_sync(number, lambda: Index.build(FIRST, folder)))
        try:
            assert_whole(Index(folder, verify=True))
        except InputError as error:
            assert "is not an index" in str(error)
            Index.build(FIRST, folder)
        assert {doc.doc_id: doc for doc in Index(folder).docs()} == docs_at(1)
        assert not leftovers(folder), leftovers(folder)
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    return kills


if __name__ == "__main__":
    os.fsync = lambda handle: None  # a killed process loses nothing, only a power cut would
    # Compile first what the children need, or they would die compiling.
    parent = Path(sys.argv[1])
    warm = parent / "warm"
    Index.build(FIRST, warm)
    while Index(warm).generation < 7:
        change(warm)
    for trial in sys.argv[2:]:  # as in `at_every_sync:2`
        moments, times = trial.split(":")
        print(globals()[moments](parent / moments, int(times)))
