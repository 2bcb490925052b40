"""The files that one query of `glassrank search` crosses, from the command to its sorted hits."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from test_pipeline import texts, tiny_model

import glassrank
from glassrank.backends.compiled import Compiled
from glassrank.cli.search import search
from glassrank.embeddings import encode_index
from glassrank.index import Index
from glassrank.models.io.load import load_for_inference
from glassrank.models.io.torch_files import save_model
from glassrank.rerank import Pipeline, Reranker
from glassrank.types import Doc

PACKAGE = Path(glassrank.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text("utf-8")
DOCUMENTED = set(re.findall(r"`([\w/]+\.py)`", PAGE.split("<!-- way -->")[1]))
MOST_FILES = {"first stage": 14, "on the fly": 25, "stored": 25}
MOST_FRAMES = 6
"""Of encoding a query, those of ONNX Runtime included."""


def trace(call: Callable[[], None], inside: object) -> list[str]:
    """The files of ours that are entered while `inside` runs, in their order."""
    seen: dict[str, None] = {}
    entered: list[FrameType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code is inside:
            entered.append(frame)
        if event == "return" and entered and frame is entered[0]:
            entered.clear()
        if code is Compiled.__call__.__code__:
            # Compiled code has no frame, and numba tells a profiler of it before Python 3.12 alone.
            code = frame.f_locals["self"].py_func.__code__
        path = Path(code.co_filename)
        if event == "call" and entered and path.is_relative_to(PACKAGE):
            seen.setdefault(path.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return list(seen)


@pytest.mark.parametrize("kind", MOST_FILES)
def test_a_query_crosses_few_files(tmp_path: Path, kind: str) -> None:
    made = tiny_model()
    save_model(tmp_path / "model", made.model, made.usage, made.vocabulary, "# a card\n")
    index = Index.build([Doc(f"d{n}", text) for n, text in enumerate(texts(30))], tmp_path / "i")
    if kind == "stored":
        encode_index(index, load_for_inference(tmp_path / "model"))
    model = None if kind == "first stage" else [str(tmp_path / "model")]
    search(tmp_path / "i", "the cat sat", model=model)  # loads and compiles what is needed once
    files = trace(
        lambda: search(tmp_path / "i", "the cat sat", model=model), Pipeline.__call__.__code__
    )
    crossed = ["cli/search.py", *files]
    assert len(crossed) <= MOST_FILES[kind], "\n".join(crossed)
    assert {file for file in files if file.startswith("rerank/")} <= DOCUMENTED
    assert not any(file.startswith("research/") for file in crossed)
    scorers = {"first stage": set(), "on the fly": {"text"}, "stored": {"stored"}}[kind]
    assert {name for name in ("text", "stored") if f"rerank/{name}_scorer.py" in files} == scorers


def test_encoding_a_query_takes_few_frames(tmp_path: Path) -> None:
    made = tiny_model()
    save_model(tmp_path / "model", made.model, made.usage, made.vocabulary, "# a card\n")
    reranker = Reranker(load_for_inference(tmp_path / "model"))
    reranker.encode_query("the cat")
    deepest: list[str] = []

    def note(frame: FrameType | None, event: str, _: object) -> None:
        nonlocal deepest
        names = []
        while frame is not None and frame.f_code is not here:
            names.append(f"{Path(frame.f_code.co_filename).name}: {frame.f_code.co_name}")
            frame = frame.f_back
        if event == "call" and len(names) > len(deepest):
            deepest = names

    here = sys._getframe().f_code
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        reranker.encode_query("the cat sat")
    finally:
        sys.setprofile(before)
    assert len(deepest) <= MOST_FRAMES, deepest
