"""Stop words removed, as the RPACRR paper has it: in training, in ranking, and in explanations."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_run import tiny_config

from glassrank.errors import InputError
from glassrank.explanations import Change, explain, what_if
from glassrank.models.io.load import load_model
from glassrank.rerank import Reranker
from glassrank.research.train.combine import select_models
from glassrank.research.train.config import TrainConfig
from glassrank.research.train.config_files import (
    check_same_settings,
    preparation_settings,
    read_config,
    run_settings,
)
from glassrank.research.train.loop import train
from glassrank.research.train.prepare import prepare
from glassrank.research.train.prepared_folders import load_prepared, save_prepared
from glassrank.research.train.training_texts import read_collections

DOCS = {
    "d1": "What a hat is this? It is of felt.",
    "d2": "The owl of the wood; and it hoots.",
    "d3": "A dog, and with it a cat.",
}
QUERIES = {"q1": "what is the hat made of", "q2": "how does an owl hoot"}
RPACRR = {"query_length": 4, "doc_length": 6, "filters": 16, "hidden": [32, 32]}


def small_run(folder: Path, **changes: Any) -> TrainConfig:
    (folder / "docs.tsv").write_text("".join(f"{n}\t{text}\n" for n, text in DOCS.items()))
    (folder / "queries.tsv").write_text("".join(f"{n}\t{text}\n" for n, text in QUERIES.items()))
    (folder / "qrels.txt").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    (folder / "first.run").write_text(
        "".join(f"{q} Q0 {d} 1 {n} x\n" for q in QUERIES for n, d in enumerate(DOCS))
    )
    queries, qrels = "queries.tsv", "qrels.txt"
    files = {"docs": "docs.tsv", "train_queries": queries, "train_qrels": qrels}
    dev = {"dev_queries": queries, "dev_qrels": qrels}
    settings = {
        "model": "rpacrr",
        "config": RPACRR,
        "doc_length": 6,
        "remove_stop_words": True,
        "vectors": {"size": 8, "min_count": 1, "whole_documents": True},
        "optimizer": {"steps": 2, "rest": 1e-4},
        "candidates": {"run": ["first.run"]},
        **changes,
    }
    return tiny_config(collections=[{"name": "small", **files, **dev}], **settings)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stop_words")
    config = small_run(folder)
    prepared = prepare(config, read_collections(config, folder), folder)
    save_prepared(folder / "prepared", prepared)
    train(config, prepared, folder / "out", base=folder)
    return folder


def test_arrays_have_the_words_that_are_left(trained: Path) -> None:
    prepared = load_prepared(trained / "prepared", small_run(trained))
    words = prepared.words[2:]
    assert sorted(words) == sorted("hat felt owl wood hoots dog cat made hoot".split())
    read = [[prepared.words[number] for number in ids] for ids in prepared.docs]
    assert read == [["hat", "felt"], ["owl", "wood", "hoots"], ["dog", "cat"]]
    assert [prepared.words[n] for n in prepared.train.queries[0]] == ["hat", "made"]


def test_what_was_prepared_or_begun_otherwise_is_refused(trained: Path) -> None:
    config = small_run(trained)
    other = replace(config, remove_stop_words=False)
    with pytest.raises(InputError, match="was made with remove_stop_words = True, now it is False"):
        load_prepared(trained / "prepared", other)
    for settings in (preparation_settings, run_settings):
        before = {n: v for n, v in settings(other).items() if n != "remove_stop_words"}
        check_same_settings(before, settings(other), "a folder from before there was a choice", "")
        with pytest.raises(InputError, match="with remove_stop_words = False, now it is True"):
            check_same_settings(before, settings(config), "it", "")


def test_a_trained_model_reads_none_of_them(trained: Path) -> None:
    saved = load_model(trained / "out" / "best")
    assert saved.usage.remove_stop_words
    reranker = Reranker(saved)
    bare, dressed = "hat felt owl", "What is a hat? It was of felt, and with the owl!"
    for query in ("felt hat", "what is the felt of a hat?"):
        values = reranker.scores(query, [bare, dressed]).values
        assert values[0] == values[1] != 0
    assert reranker.scores("hat", [bare]).values != reranker.scores("owl", [bare]).values
    assert not reranker.scores("hat", ["the of and " * 50 + bare]).cut[0]
    nothing = reranker.scores("what is it?", [bare, "the"]).values  # no query is left, no text
    assert np.isfinite(nothing).all() and nothing[0] == nothing[1]


def test_explanations_point_at_the_words_that_are_left(trained: Path) -> None:
    reranker = Reranker(load_model(trained / "out" / "best"))
    text = "What hat? The other hat is of felt."
    explanation = explain(reranker, "is there a hat", text)
    placed = [(word.text, word.start, word.stop) for word in explanation.doc.words]
    assert [word for word, _, _ in placed] == ["hat", "hat", "felt"]
    assert [text[start:stop] for _, start, stop in placed] == ["hat", "hat", "felt"]
    assert placed[0][1] == text.index("hat?")  # not the one in `What`
    assert any("left out 7 of the document" in note for note in explanation.notes)
    assert explanation.score == pytest.approx(reranker.scores("hat", [text]).values[0])
    changed = what_if(reranker, "hat", [text], Change("document", 2, by="wool"), doc=0)
    assert changed.text == "What hat? The other hat is of wool."


def test_models_that_read_otherwise_are_kept_apart(trained: Path) -> None:
    config = small_run(trained)
    prepared = load_prepared(trained / "prepared", config)
    best = trained / "out" / "best"
    other = replace(config, remove_stop_words=False)
    train(other, prepared, trained / "other", base=trained)
    with pytest.raises(InputError, match="some models remove stop words"):
        select_models([best, trained / "other" / "best"], prepared, trained / "both")
    select_models([best], prepared, trained / "ensemble")
    assert load_model(trained / "ensemble").usage.remove_stop_words
    start = replace(other, start=replace(other.start, model=str(best)))
    with pytest.raises(InputError, match=r"was trained with remove_stop_words = true; set it so"):
        prepare(start, read_collections(replace(start, remove_stop_words=True), trained), trained)


def test_pieces_are_of_whole_texts(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'model = "bert"\nout = "o"\nprepared = "p"\nremove_stop_words = true\n[[collections]]\n'
        'name = "a"\ndocs = "d"\ntrain_queries = "q"\ntrain_qrels = "r"\n'
    )
    with pytest.raises(InputError, match="remove_stop_words: a bert reads subwords of whole texts"):
        read_config(path)


def test_the_papers_own_settings_remove_them() -> None:
    papers = Path(__file__).parents[3] / "configs" / "papers"
    removed = set()
    for path in papers.glob("*.toml"):
        with suppress(InputError):  # what others extend has no model
            if read_config(path).remove_stop_words:
                removed.add(path.stem)
    assert removed == {p.stem for p in papers.glob("rpacrr*.toml")} - {"rpacrr-common"}
