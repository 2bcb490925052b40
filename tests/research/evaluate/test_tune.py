"""Choosing the first stage's parameters on dev queries."""

from pathlib import Path

import pytest

from glassrank.errors import InputError
from glassrank.index import BM25, QL, RM3, Index
from glassrank.research.evaluate import evaluate
from glassrank.research.evaluate.tune import find_best, find_edge_parameters, make_grid, tune
from glassrank.types import Doc, Qrels, Query

QUERIES = [Query("q1", "cat"), Query("q2", "dog")]
QRELS: Qrels = {"q1": {"long": 1}, "q2": {"short-dog": 1}}


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """The relevant cat document is the long one, so no length normalisation is right for it."""
    docs = [
        Doc("long", "cat cat cat " + "filler " * 60),
        Doc("short", "cat nap"),
        Doc("short-dog", "dog"),
        Doc("other-dog", "dog and many other words about nothing at all"),
    ]
    return Index.build(docs, tmp_path / "index")


def test_the_best_method_is_at_least_as_good_as_the_given_one(index: Index) -> None:
    trials = list(tune(index, QUERIES, QRELS, "bm25", "RR@10"))
    assert trials[0].method == BM25()
    assert find_best(trials).value == 1.0 > trials[0].value


def test_a_trial_has_the_value_that_evaluation_gives(index: Index) -> None:
    for trial in tune(index, QUERIES, QRELS, "ql", "nDCG@10"):
        run = index.retrieve(QUERIES, 10, trial.method)
        assert trial.value == evaluate(run, QRELS, ["nDCG@10"]).mean["nDCG@10"]


def test_feedback_is_tuned_over_its_base_as_it_is() -> None:
    grid = make_grid(RM3(QL(mu=77)))
    assert len(grid) == len(set(grid)) > 50
    assert all(isinstance(method, RM3) and method.base == QL(mu=77) for method in grid)


def test_a_tie_goes_to_the_method_as_given(index: Index) -> None:
    trials = list(tune(index, [QUERIES[1]], QRELS, "bm25", "R@10"))
    assert find_best(trials).method == BM25()


def test_queries_without_judgments_are_an_error(index: Index) -> None:
    with pytest.raises(InputError, match="no query has a judgment"):
        next(tune(index, [Query("q9", "cat")], QRELS))


def test_the_edge_of_the_grid_is_named() -> None:
    assert find_edge_parameters(QL(mu=6000)) == ["mu"] and find_edge_parameters(QL(mu=500)) == []
    assert find_edge_parameters(BM25(k1=4.0, b=0.0)) == ["k1"]
    assert find_edge_parameters(RM3(BM25(), terms=40, docs=3, weight=0.5)) == ["terms", "docs"]
