"""Kills encoding and goes on with it, again and again. Run by test_killed_encoder.py."""

import random
import shutil
import sys
import time
from pathlib import Path

from store_changes import STARTS, New, contents, prepare

sys.path.append(str(Path(__file__).parents[1]))
from killed import dies_at_sync, killed


def at_syncs(case: New, start: Path, step: int) -> int:
    """Killed once at every n-th sync, and then finished."""
    copy, expected, kills = start.with_name("copy"), case.finished(start), 0
    for number in range(1, 1000, step):
        shutil.copytree(start, copy)
        dead = killed(dies_at_sync(number, lambda: case.work(copy)))
        case.assert_unbroken(copy)
        case.work(copy)
        assert contents(copy) == expected, number
        shutil.rmtree(copy)
        if not dead:
            break
        kills += 1
    return kills


def at_random(case: New, start: Path, least: int) -> int:
    """Killed again and again, until it happens to be finished in time; this some times over."""
    copy, kills = start.with_name("copy"), 0
    began = time.perf_counter()
    expected = case.finished(start)
    longest = time.perf_counter() - began
    while kills < least:
        shutil.copytree(start, copy)
        while killed(lambda: case.work(copy), random.uniform(0, longest)):
            kills += 1
            case.assert_unbroken(copy)
        assert contents(copy) == expected
        shutil.rmtree(copy)
    return kills


def main(folder: Path, *trials: str) -> None:
    """Trials are as in `at_syncs:new:6`; prints how many kills each took."""
    saved = prepare()
    for trial in trials:
        moments, name, number = trial.split(":")
        case = STARTS[name](saved)
        case.begin(folder)
        print({"at_syncs": at_syncs, "at_random": at_random}[moments](case, folder, int(number)))
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
