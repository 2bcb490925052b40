"""Probabilities of relevance: fitted on judged queries, saved with the model, shown with hits."""

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glassrank
from glassrank.deadline import NEVER
from glassrank.errors import InputError
from glassrank.index import Index
from glassrank.models.calibration import Calibration
from glassrank.models.io.load import load_model
from glassrank.models.io.model_folder import CONFIG, PACKAGED, Usage
from glassrank.models.io.torch_files import save_model
from glassrank.rerank import Pipeline, Reranker, load
from glassrank.rerank.cascade import Cascade
from glassrank.rerank.scheduler import Scheduler
from glassrank.research.train.fit_calibration import (
    JudgedScores,
    concatenate,
    fit,
    measure_quality,
    weigh_ranks,
)
from glassrank.types import Doc, Ranking

OWN = Calibration(0.6, -1.5)
numbers = st.floats(-1e30, 1e30)


def drawn(count: int, seed: int = 0) -> JudgedScores:
    """Documents that are relevant as often as this calibration says."""
    random = np.random.default_rng(seed)
    scores = random.normal(scale=4, size=count)
    relevant = random.random(count) < OWN.probabilities(scores)
    return JudgedScores(scores, relevant, np.ones(count))


def test_a_fit_finds_the_probabilities_that_judgments_were_drawn_by() -> None:
    found = fit(drawn(20_000))
    assert found is not None
    assert (found.slope, found.bias) == pytest.approx((OWN.slope, OWN.bias), abs=0.05)
    others = drawn(10_000, 1)
    measured = measure_quality(found.probabilities(others.scores), others)
    assert measured.brier < 0.8 * measured.brier_of_mean
    assert measured.error < 0.02


def test_a_document_that_stands_for_three_counts_as_three() -> None:
    once = drawn(300)
    weights = np.where(np.arange(300) % 2, 3.0, 1.0)
    repeated = JudgedScores(
        np.repeat(once.scores, weights.astype(int)),
        np.repeat(once.relevant, weights.astype(int)),
        np.ones(int(weights.sum())),
    )
    found, expected = fit(replace(once, weights=weights)), fit(repeated)
    assert found is not None and expected is not None
    assert (found.slope, found.bias) == pytest.approx((expected.slope, expected.bias))


def test_queries_that_are_joined_count_the_same() -> None:
    assert concatenate([drawn(10), drawn(30)]).weights.sum() == pytest.approx(2)
    assert concatenate([drawn(10), drawn(30)]).weights[:10].sum() == pytest.approx(1)
    assert weigh_ranks(np.arange(1, 11)).sum() == pytest.approx(1.1)
    assert weigh_ranks(np.arange(1, 101)).sum() == pytest.approx(2)


def test_the_calibration_error_is_the_gap_in_bins_of_as_many_documents() -> None:
    """Ten bins of two documents, told 0.05, 0.15, …, of which one each is relevant."""
    told = np.repeat(np.arange(10) / 10 + 0.05, 2)
    relevant = np.arange(20) % 2 == 0
    measured = measure_quality(told, JudgedScores(told, relevant, np.ones(20)))
    assert measured.error == pytest.approx(np.abs(np.arange(10) / 10 + 0.05 - 0.5).mean())
    assert measured.brier == pytest.approx(((told - relevant) ** 2).mean())
    assert measured.brier_of_mean == pytest.approx(0.25)


@given(st.lists(numbers, min_size=1, max_size=40), numbers)
def test_probabilities_keep_the_order_of_scores(scores: list[float], one: float) -> None:
    values = np.array([*scores, one])
    told = OWN.probabilities(values)
    assert ((told > 0) & (told < 1)).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(told[order]) >= 0).all()
    assert told[-1] == OWN.probabilities(np.array([one]))[0]


def test_what_does_not_tell_is_not_calibrated() -> None:
    nothing = JudgedScores(np.arange(4.0), np.zeros(4, bool), np.ones(4))
    assert fit(nothing) is None
    upside_down = drawn(400)
    assert fit(replace(upside_down, scores=-upside_down.scores)) is None


@pytest.mark.parametrize(
    "bad", [(math.nan, 1.0), (-3.0, 1.0), (0.0, 1.0), (1e308, 0.0), (1.0, -1e308), (1.0, math.inf)]
)
def test_a_calibration_out_of_all_proportion_is_refused(bad: tuple[float, float]) -> None:
    with pytest.raises(InputError, match=r"usage.calibration"):
        Calibration(*bad)


@pytest.mark.parametrize("value", ["1e308", "1e999", "-1", "NaN"])
def test_a_folder_with_such_a_calibration_is_refused_in_one_sentence(
    tmp_path: Path, value: str
) -> None:
    saved = load("fast").saved.trained()
    folder = tmp_path / "model"
    save_model(folder, saved.model, Usage(calibration=OWN), saved.vocabulary, "# card\n")
    (folder / "checksums.json").unlink()
    config = (folder / CONFIG).read_text("utf-8")
    (folder / CONFIG).write_text(config.replace(f'"slope": {OWN.slope}', f'"slope": {value}'))
    with warnings.catch_warnings(), pytest.raises(InputError) as raised:
        warnings.simplefilter("error")
        load_model(folder)
    assert "\n" not in str(raised.value)


def test_it_is_saved_with_the_model(tmp_path: Path) -> None:
    saved = load("fast").saved.trained()
    usage = Usage(calibration=OWN)
    save_model(tmp_path / "model", saved.model, usage, saved.vocabulary, "# card\n")
    assert load_model(tmp_path / "model").usage == usage


FRANCE = "what is the capital of france?"
TEXTS = [
    "Berlin is a city in Germany, and its capital.",
    "Paris is the capital of France, on the river Seine.",
    "Bananas grow in the tropics.",
    "To read a csv file in Python, import the module csv.",
]
MANY = [*TEXTS, *(f"France has a department number {n}, and a capital there." for n in range(96))]


def told(ranking: Ranking, text: str) -> float:
    """The probability of this text."""
    (found,) = [hit.probability for hit in ranking if hit.text == text]
    assert found is not None
    return found


@pytest.mark.parametrize("models", ["fast", "default", ["fast", "default"]], ids=str)
def test_a_text_has_the_same_probability_alone_and_among_a_hundred(
    models: str | list[str],
) -> None:
    alone = told(glassrank.rank(FRANCE, TEXTS[1:2], model=models), TEXTS[1])
    for count in (2, 10, 100):
        among = glassrank.rank(FRANCE, MANY[:count], model=models)
        assert told(among, TEXTS[1]) == pytest.approx(alone, abs=1e-3)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    docs = [Doc(str(n), text) for n, text in enumerate(MANY)]
    yield Index.build(docs, tmp_path_factory.mktemp("many") / "index")


def test_a_document_has_the_same_probability_at_any_depth_and_in_any_cascade(index: Index) -> None:
    fast, default = load("fast"), load("default")
    alone = told(glassrank.rank(FRANCE, TEXTS[1:2], model=default), TEXTS[1])
    for models, candidates in (([default], 1), ([default], 100), ([fast, default], 100)):
        ranking = Pipeline(index, models, candidates=candidates, calibrate=False)(FRANCE)
        assert ranking.hits[0].ranked_by == "default"
        assert told(ranking, TEXTS[1]) == pytest.approx(alone, abs=1e-3)


def test_each_model_tells_its_own_probability(index: Index) -> None:
    """The last one comes to the best of the first one's alone."""
    pipeline = Pipeline(index, [load("fast"), load("default")], calibrate=False)
    cascade = Cascade(index.top_k([FRANCE], 100)[0])
    cascade.rerank(FRANCE, pipeline.stages, (100, 2), NEVER, Scheduler())
    hits = cascade.hits(None, index.snapshot.doc_id, index.snapshot.doc)
    assert [hit.ranked_by for hit in hits[:3]] == ["default", "default", "fast"]
    alone = Pipeline(index, load("fast"), calibrate=False)(FRANCE, 100)
    for hit in hits[2:]:
        assert hit.probability == pytest.approx(told(alone, hit.text), abs=1e-3)


def test_the_models_in_the_package_tell_what_answers_from_what_does_not() -> None:
    for model in PACKAGED:
        ranking = glassrank.rank(FRANCE, TEXTS, model=model)
        assert str(ranking.hits[0].doc_id) == "1"
        if model == "strong":  # its card says why it has no probabilities
            assert {hit.probability for hit in ranking} == {None}
            continue
        chances = [hit.probability or 0.0 for hit in ranking]
        assert chances == sorted(chances, reverse=True)
        assert chances[0] > 0.5 > max(chances[1:])
        shown = json.loads(json.dumps(ranking.to_json()))["hits"]
        assert [hit["probability"] for hit in shown] == chances


def test_an_uncalibrated_model_says_nothing() -> None:
    saved = load("fast").saved
    bare = Reranker(replace(saved, usage=replace(saved.usage, calibration=None)))
    assert {hit.probability for hit in glassrank.rank(FRANCE, TEXTS, model=bare)} == {None}


@pytest.mark.parametrize("model", sorted(PACKAGED))
def test_the_card_states_its_quality(model: str) -> None:
    card = (PACKAGED[model] / "card.md").read_text("utf-8")
    assert "Brier score" in card and "calibration error" in card
