"""`glassrank learn`: what it says, and that it writes nothing that does not help."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Call

from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.rerank import Reranker
from glassrank.research.learn import whitening
from glassrank.research.learn.learn import ChangedQuery, Learner, Outcome
from glassrank.research.learn.whitening import Whitening

COMMAND = ("learn", "my.index", "--model", "fast", "--out", "learned")


@pytest.fixture
def decide(index: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Makes the next run find an interval that begins here."""
    encode_index(Index(index), Reranker.load("fast").saved)

    def set_lowest(low: float) -> None:
        def learn(self: Learner, seconds: float, log: Any = None) -> Outcome:
            changes = [ChangedQuery("<b>cats</b>", [0, 1], [1, 0], 0.5)]
            learned = Whitening(self._index, self._reranker)
            return Outcome(learned, None, 0.5, 100, 50, 0.4, 0.5, (low, 0.2), changes)

        monkeypatch.setattr(Learner, "learn", learn)

    return set_lowest


def test_what_does_not_help_changes_nothing(decide: Any, call: Call, files: Path) -> None:
    decide(-0.01)
    done = call(*COMMAND, "--html", "report.html")
    assert done.returncode == 0 and "Nothing is changed" in done.stdout
    assert not (files / "learned").exists()
    page = (files / "report.html").read_text("utf-8")
    assert "&lt;b&gt;cats" in page and "Nothing is changed" in page


def test_what_helps_is_saved_and_can_be_used(decide: Any, call: Call, files: Path) -> None:
    decide(0.01)
    done = call(*COMMAND)
    assert done.returncode == 0 and "It helps" in done.stdout and "glassrank encode" in done.stderr
    # The same weights: whatever changed would be a fault of saving.
    scores = [
        Reranker.load(model).scores("cats", ["Cats chase mice.", "A dog barks."]).values
        for model in ("fast", files / "learned")
    ]
    assert np.allclose(*scores, atol=1e-3)


def test_a_write_that_fails_leaves_the_old_model(
    decide: Any, call: Call, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(0.01)
    call(*COMMAND)
    before = {path.name: path.read_bytes() for path in (files / "learned").iterdir()}

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whitening, "save_file", fail)
    done = call(*COMMAND)
    assert done.returncode == 1 and "No space left" in done.stderr
    assert before == {path.name: path.read_bytes() for path in (files / "learned").iterdir()}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--model", "default"), "glassrank encode"),
        (("--layers", "1"), "are for learning from clicks; give --queries"),
        (("--queries", "no.jsonl"), "does not exist"),
        (("--queries", "qrels.txt"), "expected clicks, as glassrank serve --log writes them"),
        ((), "expected 80 or more; give it more documents or minutes"),
    ],
)
def test_mistakes_are_one_sentence(
    index: Path, call: Call, arguments: tuple[str, ...], sentence: str
) -> None:
    encode_index(Index(index), Reranker.load("fast").saved)
    done = call(*COMMAND, *arguments)
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr
