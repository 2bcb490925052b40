"""Changes numbers of an index at random, with right checksums, and uses it. Run by
test_hostile_index.py in a process of its own: what compiled code does wrong ends a process."""

import faulthandler
import shutil
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from hostile_index import build, change_array, segment, survives

EXTREMES = [0, 1, -1, 2, 255, 2**15, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**63 - 1, -(2**63)]


def changed(array: Any, chance: Random) -> Any:
    """One to three numbers are others, or two change places, or some are left out or twice."""
    if not len(array):
        return np.zeros(chance.randrange(1, 4), array.dtype)
    kind = chance.choice(["set", "set", "near", "swap", "cut", "longer", "reverse"])
    array = array.copy()
    for _ in range(chance.randrange(1, 4)):
        i, j = chance.randrange(len(array)), chance.randrange(len(array))
        if kind == "set":
            array[i] = np.int64(chance.choice(EXTREMES)).astype(array.dtype)
        elif kind == "near":
            array[i] = (array[i].astype(np.int64) + chance.choice([-1, 1, 7])).astype(array.dtype)
        elif kind == "swap":
            array[i], array[j] = array[j], array[i]
    if kind == "cut":
        return array[: chance.randrange(len(array))]
    if kind == "longer":
        return np.concatenate([array, array[:3]])
    return array[::-1].copy() if kind == "reverse" else array


def main(folder: Path, tries: int, seed: int) -> None:
    build(folder / "good")
    names = sorted(file.name for file in segment(folder / "good").iterdir())
    refused = 0
    for number in range(tries):
        chance = Random(f"{seed}.{number}")
        shutil.copytree(folder / "good", folder / "bad")
        for name in chance.sample(names, chance.choice([1, 1, 2, 4])):
            change_array(folder / "bad", name, lambda array: changed(array, chance))  # noqa: B023
        try:
            refused += not survives(folder / "bad")
        except BaseException:
            print(f"try {number} of seed {seed}", file=sys.stderr)
            raise
        shutil.rmtree(folder / "bad")
    print(refused)


if __name__ == "__main__":
    faulthandler.enable()
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
