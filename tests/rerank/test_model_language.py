"""English models on other texts: it is said, once."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from glassrank.index import Index
from glassrank.index.list_bm25 import rank_by_bm25
from glassrank.index.search import TopK
from glassrank.rerank import (
    LanguageWarning,
    Pipeline,
    Reranker,
    inputs,
    rank,
    text_pipeline,
)
from glassrank.types import Doc

GERMAN = ["Die Häuser sind alt, und der Preis ist hoch.", "Zwei Katzen schliefen in der Küche."]


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_warned", False)


def test_texts_that_are_not_english_are_named_once() -> None:
    with pytest.warns(LanguageWarning, match="do not look English"):
        rank("Haus", GERMAN, model="fast")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rank("Haus", GERMAN, model="fast")


def test_an_index_that_is_not_english_is_named(tmp_path: Path) -> None:
    docs = [Doc(str(place), text) for place, text in enumerate(GERMAN)]
    index = Index.build(docs, tmp_path / "my.index", language="de")
    with pytest.warns(LanguageWarning, match=r"other languages \(de\)") as told:
        Pipeline(index, Reranker.load("fast"), calibrate=False)
    inputs._warned = False
    with pytest.warns(LanguageWarning) as told_of_folders:
        Pipeline.open(index.path, "fast", calibrate=False)
    # Where this was asked for, not a line of the package.
    assert [one.filename for one in (*told, *told_of_folders)] == [__file__] * 2


def test_nothing_is_said_of_english_or_of_ones_own_model(tmp_path: Path) -> None:
    own = Reranker.load("fast")
    own.is_english = False  # as of any folder that the user names
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rank("Haus", GERMAN, model=own)
        rank("house", ["The houses are old.", "Two cats slept."], model="fast")


def test_a_named_folder_is_not_taken_for_english(tmp_path: Path) -> None:
    from glassrank.models.io.model_folder import PACKAGED

    assert Reranker.load("fast").is_english
    assert not Reranker.load(PACKAGED["fast"]).is_english


def test_a_list_is_ordered_in_its_language(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["Zwei Katzen schliefen in der Küche.", "Alte Häuser, und was sie kosten."]
    assert rank_by_bm25("ein Haus", texts).docs.tolist() == [0, 1]
    orders = []

    def noting(query: str, texts: list[str], **options: Any) -> TopK:
        first = rank_by_bm25(query, texts, **options)
        orders.append(first.docs.tolist())
        return first

    monkeypatch.setattr(text_pipeline, "rank_by_bm25", noting)
    own = Reranker.load("fast")
    own.is_english = False
    for language in ("de", "auto"):
        rank("ein Haus", texts, model=own, language=language)
    assert orders == [[1, 0], [1, 0]]
