"""A teacher on a slow machine tells how far it is, and gives each text its own vector."""

from typing import Any

import numpy as np
import pytest

from glassrank import progress
from glassrank.research.train import teachers
from glassrank.research.train.teachers import sentence_teacher
from glassrank.research.train.training_texts import TextSplit
from glassrank.storage.mapped_arrays import Ragged


class CountingEncoder:
    """The vector of a text is how often `a` and `b` are in it."""

    def encode(self, texts: list[str], **_: Any) -> np.ndarray:
        return np.array([[text.count("a"), text.count("b")] for text in texts], np.float64)


def test_long_work_says_how_long_it_will_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teachers, "load_sentence_transformer", lambda _: CountingEncoder())
    monkeypatch.setattr(teachers, "_TEXTS_AT_ONCE", 2)
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    said: list[str] = []
    docs = [["a"], ["b", "b", "b"], ["a", "b"], [], ["a"] * 5]
    teacher = sentence_teacher("folder", docs, said.append)
    assert [line.split(",")[0] for line in said] == [
        "teacher: texts: 0 of 5", "teacher: texts: 2 of 5", "teacher: texts: 4 of 5",
    ]  # fmt: skip
    assert said[-1].endswith("left")
    candidates = Ragged.from_rows([np.arange(5), np.array([4, 1])], np.int32)
    nothing = np.zeros(7, np.int32)
    split = TextSplit(
        np.zeros(2, np.int32), candidates, nothing, nothing, nothing, queries=[["a"], ["b"]]
    )
    assert teacher(split).tolist() == [1, 0, 1, 0, 5, 0, 3]
    empty = TextSplit(nothing[:0], Ragged.from_rows([], np.int32), *[nothing[:0]] * 3, queries=[])
    assert teacher(empty).tolist() == []
