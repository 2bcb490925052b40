"""BERT[CLS] and MORES wherever other models are: in JSON, HTML and on a terminal, side by side, in
an ensemble, with a word changed, by command and over HTTP."""

import json
import sys
from pathlib import Path

import pytest
from explain_cases import DEFINITION, QUERY, THERAPY, small_ranker
from explain_cases import reranker as word_reranker
from html_reader import Page
from subword_cases import (
    SUBWORDS,
    TRANSFORMERS,
    make_subword_folder,
    make_subword_ranker,
    make_subword_reranker,
    own_reranker,
)

from glassrank.cli import main
from glassrank.errors import InputError
from glassrank.explanations import Change, Explanation, compare, explain, html_page, what_if
from glassrank.explanations.structure import WORDS_ADD, format_number, format_signed
from glassrank.explanations.terminal import draw, render_text
from glassrank.index import Index
from glassrank.models.io.model_folder import SavedModel, Usage
from glassrank.rerank import Reranker
from glassrank.research.papers.ensemble import Ensemble
from glassrank.text.subwords import WordPieceEncoder
from glassrank.types import Doc

every_transformer = pytest.mark.parametrize("name", TRANSFORMERS)


@every_transformer
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", DEFINITION),
        (QUERY, ""),
        ("", ""),
        ("\0", "\ud800"),
        ("😀", "日本 한국 😀"),
        ("é", "e\u0301"),
    ],
)
def test_any_texts_are_explained(name: str, query: str, text: str) -> None:
    found = explain(own_reranker(name), query, text)
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert Explanation.from_json(plain) == found
    assert str(found)
    assert html_page(found).encode()


@every_transformer
def test_json_html_and_terminal_agree(name: str) -> None:
    found = explain(own_reranker(name), QUERY, DEFINITION)
    plain, page = found.to_json(), Page(html_page(found))
    lines = [line.split() for line in render_text(draw(found, full=True), width=200).splitlines()]
    assert f"score {format_number(plain['score'])}" in page.text
    for place, signal in enumerate(plain["signals"]):
        printed = [format_number(signal["paths"][0]["value"]), format_number(signal["value"])]
        row = page.tables["Signals, raw values"][place + 1]
        assert [row[6], row[7]] == printed
        assert [chr(97 + place), *signal["name"].split(), *printed] in lines
    for place, term in enumerate(plain["terms"]):
        piece, value = plain["query"]["words"][term["word"]]["text"], format_number(term["value"])
        row = page.tables["Query words, raw values"][place + 1]
        assert row == [str(term["word"] + 1), piece, value]
        assert [piece, value] in lines
    for matrix in plain["matrices"]:
        rows = page.tables[matrix["name"]][1:]
        turned = (matrix["rows"], matrix["columns"]) == ("query", "document")
        values = zip(*matrix["values"], strict=True) if turned else matrix["values"]
        assert [row[1:] for row in rows] == [[format_number(v) for v in own] for own in values]
    words = page.tables[WORDS_ADD][1:]
    shares = [format_signed(mark["share"]) for mark in plain["marks"]]
    assert [row[4] for row in words] == shares + [
        format_signed(part["value"]) for part in plain["rest"]
    ]
    in_text = [
        m
        for w, m in zip(plain["doc"]["words"], plain["marks"], strict=True)
        if w["start"] is not None
    ]
    for mark, hover in zip(in_text, page.hovers, strict=True):
        signal = "" if mark["signal"] is None else f"{plain['signals'][mark['signal']]['name']}, "
        assert hover == f"{signal}adds {format_signed(mark['share'])}"
    assert DEFINITION in page.text


@every_transformer
def test_two_documents_and_two_models_side_by_side(name: str) -> None:
    own = own_reranker(name)
    left, right = (explain(own, QUERY, text) for text in (DEFINITION, THERAPY))
    rows = compare(left, right).differences
    assert rows[0].difference == left.score - right.score
    terms = [row for row in rows if row.group == "term"]
    assert [row.name for row in terms] == ["androgen", "receptor", "define"]
    other = explain(word_reranker(small_ranker("tk")), QUERY, DEFINITION)
    both = compare(left, other)
    assert {row.name for row in both.differences} >= {"together", "log", "length"}
    for shown in (compare(left, right), both):
        assert html_page(shown).count("<article>") == 2
        assert str(shown)


def test_an_ensemble_of_transformers_is_its_members() -> None:
    """BERT has no [CLS] for the document; beside MORES, which has, its attention to it is 0."""
    members = [make_subword_ranker("bert"), make_subword_ranker("mores")]
    own = Reranker(
        SavedModel(Ensemble(members, [(16, 40), (16, 48)]), Usage(16, 48), SUBWORDS), exact=True
    )
    assert isinstance(own.encoder, WordPieceEncoder)
    found = explain(own, QUERY, DEFINITION)
    alone = [
        explain(make_subword_reranker(model, 16, length), QUERY, DEFINITION)
        for model, length in zip(members, (40, 48), strict=True)
    ]
    assert found.score == pytest.approx(sum(one.score for one in alone) / 2, abs=1e-5)
    for part, one in zip(found.parts.children, alone, strict=True):
        assert part.value == pytest.approx(one.score / 2, abs=1e-5)
    assert found.doc.words[0].text == "[CLS]"
    (across,) = [m for m in found.matrices if m.name == "1 bert: layer 2: query to document"]
    assert [row[0] for row in across.values] == [0.0] * len(across.values)
    assert across.values[0][1:] == pytest.approx(alone[0].matrices[1].values[0], abs=1e-6)
    shares = [mark.share / 2 for mark in alone[0].marks]
    first = [mark.by_signal[0] for mark in found.marks]
    assert first == pytest.approx([0.0, *shares], abs=1e-5)


def place_of(own: Reranker, text: str, word: str) -> int:
    """A word's number in the document's explanation, as the page would send it."""
    return [own.text for own in explain(own, QUERY, text).doc.words].index(word)


@every_transformer
def test_a_word_of_several_pieces_is_changed_whole(name: str) -> None:
    own = own_reranker(name)
    texts = [DEFINITION, THERAPY, "nuclear cells"]
    place = place_of(own, DEFINITION, "receptor")
    for by, expected in (("", "The androgen  (AR)"), ("therapy", "The androgen therapy (AR)")):
        answer = what_if(own, QUERY, texts, Change("document", place, by))
        assert answer.text.startswith(expected)
        assert answer.text.endswith("nuclear receptor: a protein that binds hormones in cells.")
        after = own.scores(QUERY, [answer.text]).values[0]
        assert answer.moved[0].score_after == after
        assert answer.moved[0].score_before == pytest.approx(explain(own, QUERY, DEFINITION).score)
        assert answer.moved[1].score_before == answer.moved[1].score_after


@every_transformer
def test_query_and_documents_are_changed_by_word(name: str) -> None:
    own = own_reranker(name)
    assert what_if(own, QUERY, [DEFINITION], Change("query", 1)).query == " receptor define"
    answer = what_if(own, QUERY, [DEFINITION], Change("document", "receptor", "cells"))
    assert answer.text == DEFINITION.replace("receptor", "cells")
    with pytest.raises(InputError, match="the query has no word 99"):
        what_if(own, QUERY, [DEFINITION], Change("query", 99))
    with pytest.raises(InputError, match="is not in the text"):
        what_if(own, QUERY, [DEFINITION], Change("query", 0))  # [CLS]


def test_words_with_accents_and_syllables_are_changed_whole() -> None:
    own = own_reranker("mores")
    text = "cells of Cafe\u0301s and 한국 cells"
    for word, expected in (
        ("cafes", "cells of X and 한국 cells"),
        ("[UNK]", text.replace("한국", "X")),
    ):
        answer = what_if(own, QUERY, [text], Change("document", place_of(own, text, word), "X"))
        assert answer.text == expected


@every_transformer
def test_by_command(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = make_subword_folder(tmp_path / "model", name)
    Index.build([Doc("ar", DEFINITION), Doc("therapy", THERAPY)], tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    score = Reranker.load(folder).scores(QUERY, [DEFINITION]).values[0]

    def call(*arguments: str) -> str:
        asked = ["glassrank", "explain", "index", QUERY, *arguments, "--model", "model"]
        monkeypatch.setattr(sys, "argv", asked)
        try:
            main()
        except SystemExit as ended:
            assert not ended.code
        return capsys.readouterr().out

    assert f"score {format_number(score)}" in call("ar")
    assert Explanation.from_json(json.loads(call("ar", "--json"))).score == score
    call("ar", "therapy", "--html", "why.html")
    assert (tmp_path / "why.html").read_text("utf-8").count("<article>") == 2
    answer = json.loads(call("ar", "--what-if", "receptor=therapy", "--json"))
    assert answer["text"] == DEFINITION.replace("receptor", "therapy")


def test_over_http(tmp_path: Path) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    from glassrank.serve import Options, make_app

    index = Index.build([Doc("ar", DEFINITION), Doc("therapy", THERAPY)], tmp_path / "index")
    models = tuple((name, str(make_subword_folder(tmp_path / name, name))) for name in TRANSFORMERS)
    options = Options(index.path, models, budget_ms=2000.0)
    with testclient.TestClient(make_app(options), "http://localhost") as client:

        def ask(**asked: object) -> dict[str, object]:
            answer = client.post("/explain", json={"query": QUERY, **asked})
            assert answer.status_code == 200, answer.text
            found: dict[str, object] = answer.json()
            return found

        own = {name: explain(Reranker.load(path), QUERY, DEFINITION) for name, path in models}
        for name, one in own.items():
            found = ask(text=DEFINITION, model=name)
            assert Explanation.from_json(found) == one
        both = ask(text=DEFINITION, model=list(TRANSFORMERS))
        assert both == compare(*(own[name] for name in TRANSFORMERS)).to_json()
        hit = client.post("/search", json={"query": QUERY, "model": "mores"}).json()["hits"][0]
        found = ask(doc_id=hit["doc_id"], model="mores")
        assert found["score"] == pytest.approx(hit["score"], rel=1e-5)
        moved = ask(doc_id="ar", model="bert", change={"side": "document", "word": 1})
        assert "gen" not in str(moved["text"])
