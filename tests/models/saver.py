"""Saves a small model: without end, with a death at every sync, or on a disk with little room.

Run by test_saving_models.py in a process of its own, since it forks and sets limits.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from model_folders import word_model

from glassrank.errors import GlassrankError
from glassrank.models.checkpoint import fingerprint, load_model


def mark(folder: Path) -> str:
    return fingerprint(load_model(folder).model)


def without_end(folder: Path) -> None:
    for number in range(100_000):
        word_model(folder, seed=number % 2)


def killed(work: Callable[[], object]) -> bool:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"the saver failed: {status}"
    return status == signal.SIGKILL


def dies_at_sync(number: int, work: Callable[[], object]) -> Callable[[], object]:
    def dying() -> None:
        calls = iter(range(1, number))

        def count(handle: int) -> None:
            if next(calls, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = count
        work()

    return dying


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
    print(number - 1)


@contextmanager
def limited(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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
            print(limit)
            return


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](Path(sys.argv[2]))
