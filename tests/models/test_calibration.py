"""Probabilities of relevance: fitted on judged queries, saved with the model, shown with hits."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glassrank
from glassrank.errors import InputError
from glassrank.models.calibration import Calibration, JudgedScores, calibrate, fit, quality
from glassrank.models.checkpoint import Usage, load_model
from glassrank.models.trained import save_model
from glassrank.ranking import Pipeline, Reranker, load
from glassrank.retrieve import Index
from glassrank.types import Doc

OWN = Calibration(0.05, 0.6, 0.3, -0.8, -0.5)
numbers = st.floats(-1e4, 1e4)


def drawn(count: int, seed: int = 0) -> list[JudgedScores]:
    """Lists whose candidates are relevant as often as this calibration says; each query has a level
    of its own, as the scores of real ones do."""
    random = np.random.default_rng(seed)
    lists = []
    for _ in range(count):
        scores = random.normal(scale=4, size=random.integers(2, 30)) + random.normal(scale=5)
        lists.append(JudgedScores(scores, random.random(len(scores)) < OWN.probabilities(scores)))
    return lists


def test_a_fit_finds_the_probabilities_that_judgments_were_drawn_by() -> None:
    found = fit(drawn(4000))
    assert found is not None
    told = [
        found.probabilities(one.scores) - OWN.probabilities(one.scores) for one in drawn(100, 1)
    ]
    assert np.abs(np.concatenate(told)).max() < 0.05
    on_others = quality(found, drawn(1000, 2))
    assert on_others.brier < 0.8 * on_others.brier_of_mean
    assert on_others.error < 0.02


@given(st.lists(numbers, min_size=1, max_size=40), numbers)
def test_probabilities_keep_the_order_of_scores(scores: list[float], one: float) -> None:
    values = np.array([*scores, one])
    told = OWN.probabilities(values)
    assert ((told > 0) & (told < 1)).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(told[order]) >= 0).all()


def test_a_query_whose_scores_are_all_higher_has_nearly_the_same_probabilities() -> None:
    scores = np.array([3.0, 1.0, -2.0, 0.5])
    assert OWN.probabilities(scores + 2) == pytest.approx(OWN.probabilities(scores), abs=0.03)


def test_what_does_not_tell_is_not_calibrated() -> None:
    nothing = [JudgedScores(np.arange(4.0), np.zeros(4, bool))] * 8
    assert calibrate(nothing) is None and calibrate([]) is None
    upside_down = [replace(one, scores=-one.scores) for one in drawn(400)]
    assert fit(upside_down) is None


def test_lists_are_held_out_by_query() -> None:
    """Every other query is only measured on: what they say cannot have been learnt."""
    right, wrong = (
        JudgedScores(np.array([9.0, 1.0]), np.array([True, False])),
        np.array([False, True]),
    )
    found = calibrate([right, replace(right, relevant=wrong)] * 20)
    assert found is not None
    assert found[1].brier > 0.5


@pytest.mark.parametrize("bad", [(float("nan"), 1, 1, 0, 0), (-3.0, 1, 1, 0, 0)])
def test_a_calibration_that_turns_the_order_around_is_refused(bad: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match=r"usage.calibration"):
        Calibration(*bad)


def test_it_is_saved_with_the_model(tmp_path: Path) -> None:
    saved = load().saved.trained()
    usage = Usage(calibration=OWN, texts_calibration=None)
    save_model(tmp_path / "model", saved.model, usage, saved.vocabulary, "# card\n")
    assert load_model(tmp_path / "model").usage == usage


FRANCE = "what is the capital of france?"
TEXTS = [
    "Berlin is a city in Germany, and its capital.",
    "Paris is the capital of France, on the river Seine.",
    "Bananas grow in the tropics.",
    "To read a csv file in Python, import the module csv.",
]


def test_the_model_in_the_package_is_calibrated_for_texts_and_for_an_index(tmp_path: Path) -> None:
    ranking = glassrank.rank(FRANCE, TEXTS)
    assert str(ranking.hits[0].doc_id) == "1"
    chances = [hit.probability or 0.0 for hit in ranking]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.5 > max(chances[1:])
    index = Index.build([Doc(str(n), text) for n, text in enumerate(TEXTS)], tmp_path / "index")
    listed = Pipeline(index, load(), calibrate=False)(FRANCE)
    assert listed.hits[0].doc_id == "1"
    assert [hit.probability for hit in listed] == sorted(
        (hit.probability or 0.0 for hit in listed), reverse=True
    )
    shown = json.loads(json.dumps(listed.to_json()))["hits"]
    assert [hit["probability"] for hit in shown] == [hit.probability for hit in listed]


def test_an_uncalibrated_model_says_nothing() -> None:
    saved = load().saved
    bare = Reranker(replace(saved, usage=replace(saved.usage, texts_calibration=None)))
    assert {hit.probability for hit in glassrank.rank(FRANCE, TEXTS, model=bare)} == {None}


def test_the_card_states_its_quality() -> None:
    card = (
        Path(glassrank.__file__).parent / "models" / "packaged" / "default" / "card.md"
    ).read_text("utf-8")
    assert "Brier score" in card and "calibration error" in card
