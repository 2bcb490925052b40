"""Who of pytest-xdist's workers gets which tests: the longest files first, so that no worker waits
for another at the end, and then folder by folder, so that what the files of one share is made once
by each worker. Without this it would be the files with most tests first, of all folders in turn."""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

WHOLE = ("tests/page",)
"""Folders that one worker takes as a whole: their tests share a browser."""
LONGEST = (
    *WHOLE,
    *("tests/research/train/test_training.py", "tests/research/train/test_train_on_passages.py"),
    *(
        "tests/research/train/test_transformer_training.py",
        "tests/research/train/test_run_folders.py",
    ),
)
"""Others follow as they are collected, at last the doctests, which are short."""


def unit(test: str) -> str:
    """What is not divided among workers: the file of a test, or its folder."""
    file = test.split("::", 1)[0]
    return next((folder for folder in WHOLE if file.startswith(f"{folder}/")), file)


def longest_first(tests: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    tests.sort(key=lambda test: places.get(unit(test.nodeid), len(places)))


class ByUnit(LoadFileScheduling):
    """In the order of the tests."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
