"""A query runs through the files that docs/architecture.md names."""

import re
import sys
from pathlib import Path
from types import FrameType

import pytest
from test_pipeline import texts, tiny_model

import glassrank
from glassrank.backends.compiled import Compiled
from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.models.io.load import load_for_inference
from glassrank.models.io.torch_files import save_model
from glassrank.rerank import Pipeline, Reranker
from glassrank.types import Doc

PACKAGE = Path(glassrank.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text("utf-8")
WAY = re.findall(r"`([\w/]+\.py)`", PAGE.split("<!-- way -->")[1])
OTHERS = {
    True: {"rerank/text_candidates.py"},
    False: {"rerank/stored_candidates.py"},
}
"""Where texts go, and where stored words go."""


def followed(pipeline: Pipeline) -> list[str]:
    """The files that a query comes through, in the order in which it first does."""
    seen: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code is Compiled.__call__.__code__:
            # Compiled code has no frame, and numba tells a profiler of it before Python 3.12 alone.
            code = frame.f_locals["self"].py_func.__code__
        path = Path(code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            seen.setdefault(path.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        pipeline("the cat sat", budget_ms=5000)
    finally:
        sys.setprofile(before)
    return list(seen)


@pytest.mark.parametrize("stored", [True, False])
def test_a_query_runs_through_the_documented_files(tmp_path: Path, stored: bool) -> None:
    made = tiny_model()
    save_model(tmp_path / "model", made.model, made.usage, made.vocabulary, "# a card\n")
    saved = load_for_inference(tmp_path / "model")
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(30))], tmp_path / "i")
    if stored:
        encode_index(index, saved)
    files = followed(Pipeline(index, Reranker(saved)))
    assert [file for file in files if file in WAY] == [f for f in WAY if f not in OTHERS[stored]]
    # Of what is ours to arrange, nothing else is on the way.
    assert {file for file in files if file.startswith("rerank/")} <= set(WAY)
