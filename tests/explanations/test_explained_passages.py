"""Of a long document the best passage is explained, with places in the whole text."""

from dataclasses import replace
from pathlib import Path

import pytest
from explain_cases import DEFINITION, QUERY, THERAPY, reranker, small_ranker
from subword_cases import make_subword_ranker, make_subword_reranker

import glassrank
from glassrank.embeddings import Store, encode_index
from glassrank.explanations import (
    Change,
    Explanation,
    explain_docs,
    html_page,
    what_if,
    what_if_doc,
)
from glassrank.explanations.structure import iter_gaps
from glassrank.index import Index
from glassrank.models.doc_reader import join_title
from glassrank.models.io.model_folder import Passages, SavedModel
from glassrank.rerank import Pipeline, Reranker
from glassrank.settings import from_plain
from glassrank.types import Doc

TITLE = "The body"
LONG = Doc("long", f"{THERAPY} {DEFINITION} {THERAPY} {DEFINITION[:60]}.", TITLE)
DOCS = [LONG, Doc("definition", DEFINITION), Doc("therapy", THERAPY, TITLE)]


def shortened(name: str, longest: int, **settings: float) -> SavedModel:
    """A small model that reads so many words at once."""
    saved = (
        make_subword_reranker(make_subword_ranker(name))
        if name == "mores"
        else reranker(small_ranker(name))
    ).saved
    usage = replace(
        saved.usage, doc_length=longest, passages=from_plain(Passages, settings, "passages")
    )
    return replace(saved, usage=usage)


def explained(
    saved: SavedModel, tmp_path: Path, stored: bool, leave_out: str = ""
) -> tuple[Pipeline, Explanation]:
    index = Index.build(DOCS, tmp_path / "index")
    store = None
    if stored:
        encode_index(index, saved, tmp_path / "store", "int8", leave_out=leave_out)
        store = Store.open(tmp_path / "store", saved.model, index.snapshot)
    pipeline = Pipeline(index, Reranker(saved, exact=True), store=store, calibrate=False)
    (explanation,) = explain_docs(pipeline, QUERY, ["long"])
    return pipeline, explanation


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("name", ["tk", "knrm", "tk_windowed", "pacrr", "mores"])
def test_the_passage_that_earned_the_score_is_explained(
    tmp_path: Path, name: str, stored: bool
) -> None:
    saved = shortened(name, 60 if name == "mores" else 25)
    pipeline, explanation = explained(saved, tmp_path, stored)
    (hit,) = (hit for hit in pipeline(QUERY) if hit.doc_id == "long")
    assert hit.passage is not None
    assert explanation.score == pytest.approx(hit.score, rel=1e-4, abs=1e-5)
    before = len(TITLE) + 1
    assert explanation.doc.passage == (hit.passage[0] + before, hit.passage[1] + before)
    assert explanation.doc.text == join_title(LONG)
    assert explanation.doc.cut == 0
    assert "its best passage, number" in " ".join(explanation.notes)
    placed = [word for word in explanation.doc.words if word.start is not None]
    assert placed
    for word in placed:
        assert word.start is not None and word.stop is not None
        shown = explanation.doc.text[word.start : word.stop].lower()
        assert shown == word.text
        in_title = word.stop <= len(TITLE)
        assert in_title or explanation.doc.passage[0] <= word.start < explanation.doc.passage[1]
    assert [word.text for word in placed[:2]] == ["the", "body"]


def test_a_text_by_itself_is_explained_by_its_best_passage() -> None:
    saved = shortened("tk", 25)
    alone = Reranker(saved, exact=True)
    explanation = glassrank.explain(alone, QUERY, LONG.text)
    assert explanation.doc.passage is not None
    assert explanation.score == pytest.approx(alone.scores(QUERY, [LONG.text]).values[0], rel=1e-5)
    short = glassrank.explain(alone, QUERY, "androgen receptor")
    assert short.doc.passage is None


@pytest.mark.parametrize("how", [{"best": 2}, {"first": 0.5}], ids=["best", "first"])
def test_several_passages_add_up(how: dict[str, float], tmp_path: Path) -> None:
    pipeline, explanation = explained(shortened("tk", 25, **how), tmp_path, stored=True)
    (hit,) = (hit for hit in pipeline(QUERY) if hit.doc_id == "long")
    assert explanation.score == pytest.approx(hit.score, rel=1e-4)
    assert explanation.parts.value == pytest.approx(hit.score, rel=1e-4)
    assert "other passages" in [part.name for part in explanation.parts.children]


def test_what_was_not_read_is_faint(tmp_path: Path) -> None:
    _, explanation = explained(shortened("tk", 25), tmp_path, stored=False)
    unread = [
        explanation.doc.text[a:b] for a, b, is_unread in iter_gaps(explanation.doc) if is_unread
    ]
    assert explanation.doc.passage is not None
    start, stop = explanation.doc.passage
    assert "".join(unread).strip() in explanation.doc.text
    assert len("".join(unread)) >= len(explanation.doc.text) - (stop - start) - len(TITLE) - 2
    assert html_page(explanation).count('<span class="cut">') == len(unread)


@pytest.mark.parametrize("kind", ["punctuation", "function-words"])
def test_words_that_a_store_leaves_out_are_not_explained(tmp_path: Path, kind: str) -> None:
    saved = shortened("tk", 25)
    pipeline, explanation = explained(saved, tmp_path, stored=True, leave_out=kind)
    (hit,) = (hit for hit in pipeline(QUERY) if hit.doc_id == "long")
    assert explanation.score == pytest.approx(hit.score, rel=1e-4, abs=1e-5)
    words = [word.text for word in explanation.doc.words]
    assert len(words) == len(explanation.marks)
    assert not {",", ".", ":", "("} & set(words)
    assert ("the" in words) == (kind == "punctuation")
    assert explanation.parts.value == pytest.approx(explanation.score, rel=1e-4)


def test_a_word_of_a_passage_is_changed_by_its_number(tmp_path: Path) -> None:
    saved = shortened("tk", 25)
    pipeline, explanation = explained(saved, tmp_path, stored=False)
    number = len(explanation.doc.words) - 3
    word, text = explanation.doc.words[number], explanation.doc.text
    changed, _ = what_if_doc(pipeline, QUERY, "long", Change("document", number, "androgen"))
    assert changed.text == f"{text[: word.start]}androgen{text[word.stop :]}"
    moved = changed.moved[changed.doc]
    assert moved.score_before == pytest.approx(explanation.score, rel=1e-4)
    assert moved.score_after != moved.score_before


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("body", Doc("", LONG.text.replace(" body ", " house "), "The house")),
        ("men", Doc("", LONG.text.replace(" men ", " house "), TITLE)),
        (
            "the",
            Doc("", LONG.text.replace("The ", "house ").replace(" the ", " house "), "house body"),
        ),
    ],
)
def test_a_changed_title_is_still_the_title(word: str, expected: Doc) -> None:
    alone = Reranker(shortened("tk", 25), exact=True)
    changed = what_if(alone, QUERY, [LONG], Change("document", word, "house"))
    assert changed.text == join_title(expected)
    score = float(alone.scores(QUERY, [expected]).values[0])
    assert changed.moved[0].score_after == pytest.approx(score, rel=1e-5)
