"""Saves a small model: without end, with a death at every sync, or on a disk with little room.

Run by test_saving_models.py in a process of its own, since it forks and sets limits.
"""

import sys
from pathlib import Path

import torch
from model_folders import word_model

from glassrank.errors import GlassrankError
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import fingerprint

sys.path.append(str(Path(__file__).parents[1]))
from killed import dies_at_sync, killed, limited


def mark(folder: Path) -> str:
    return fingerprint(load_model(folder).model)


def without_end(folder: Path) -> None:
    for number in range(100_000):
        word_model(folder, seed=number % 2)


def at_every_sync(folder: Path) -> None:
    """The old model or the new one, and the next saver tidies up."""
    wanted = [mark(word_model(folder.with_name("other"), seed=seed)) for seed in (0, 1)]
    word_model(folder)
    number = 1
    while killed(dies_at_sync(number, lambda: word_model(folder, seed=1))):
        assert mark(folder) in wanted
        word_model(folder)
        assert mark(folder) == wanted[0]
        left = sorted(path.name for path in folder.parent.iterdir())
        assert left == ["model", "other"], left
        number += 1
    assert mark(folder) == wanted[1]
    print("at_every_sync", number - 1)


def little_room(folder: Path) -> None:
    """Until there is enough room for all, one sentence, and the old model stays."""
    before = mark(word_model(folder))
    for limit in range(0, 100_000, 500):
        try:
            with limited(limit):
                word_model(folder, seed=1)
        except GlassrankError as error:
            assert str(error).count("cannot write") == 1 and "\n" not in str(error), str(error)
            assert "File too large" in str(error), str(error)
            assert mark(folder) == before
            assert [path.name for path in folder.parent.iterdir()] == ["model"]
        else:
            print("little_room", limit)
            return


if __name__ == "__main__":
    torch.set_num_threads(1)
    for job in sys.argv[1].split(","):
        parent = Path(sys.argv[2]) / job
        parent.mkdir(exist_ok=True)
        globals()[job](parent / "model")
