"""Every re-ranking depth against a run that is really re-ranked to that depth."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_runs import RunDict, cases

from glassrank.errors import InputError
from glassrank.research.evaluate import (
    DepthCurve,
    Measure,
    evaluate,
    evaluate_at_depths,
)
from glassrank.types import Qrels, Run

MEASURES = [
    "RR",
    "RR(rel=2)@3",
    "nDCG@10",
    "nDCG",
    "AP",
    "AP@5",
    "P(rel=2)",
    "P@5",
    "R@3",
    "R",
    "ERR@20",
]


def trec_sorted(docs: dict[str, float]) -> list[str]:
    return sorted(docs, key=lambda doc: (docs[doc], doc), reverse=True)


def rerank(first: RunDict, second: RunDict, depth: int, keep_rest: bool) -> Run:
    out: RunDict = {}
    for query, docs in first.items():
        scores = second.get(query, {})
        ranked = trec_sorted(docs)
        top, rest = ranked[:depth], ranked[depth:]
        scored = trec_sorted({doc: scores[doc] for doc in top if doc in scores})
        new = scored + [doc for doc in top if doc not in scores] + (rest if keep_rest else [])
        out[query] = {doc: -float(place) for place, doc in enumerate(new)}
    return Run.from_dict(out)


@given(first=cases(), second=cases(), keep_rest=st.booleans())
@settings(max_examples=30, deadline=None)
def test_each_depth_is_the_run_reranked_to_it(
    first: tuple[RunDict, Qrels], second: tuple[RunDict, Qrels], keep_rest: bool
) -> None:
    run, qrels = first
    depths = [1, 2, 3, 5, 8, 13, 21, 34, 100]
    curves = evaluate_at_depths(
        Run.from_dict(run),
        Run.from_dict(second[0]),
        qrels,
        MEASURES,
        depths,
        keep_rest,
        per_query=True,
    )
    for i, d in enumerate(depths):
        expected = evaluate(rerank(run, second[0], d, keep_rest), qrels, MEASURES)
        for name in MEASURES:
            assert curves[name].mean[i] == pytest.approx(expected.mean[name]), (name, d)
            assert curves[name].per_query[i] == pytest.approx(expected.per_query[name]), (name, d)


def test_small_groups_give_the_same_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    first = Run.from_dict({f"q{q}": {f"d{d}": rng.random() for d in range(20)} for q in range(30)})
    second = Run(first.query_ids, first.offsets, first.doc_ids, rng.random(len(first.scores)))
    qrels = {f"q{q}": {f"d{d}": int(rng.integers(0, 3)) for d in range(6)} for q in range(30)}
    whole = evaluate_at_depths(first, second, qrels, ["nDCG@10"])["nDCG@10"].mean
    monkeypatch.setattr(sys.modules["glassrank.research.evaluate.evaluate"], "CELLS", 1)
    parts = evaluate_at_depths(first, second, qrels, ["nDCG@10"])["nDCG@10"].mean
    assert parts == pytest.approx(whole)


def test_per_query_values_are_kept_only_when_asked_for() -> None:
    run = Run.from_dict({"q": {"a": 1.0}})
    curve = evaluate_at_depths(run, run, {"q": {"a": 1}}, ["RR"], [1, 2])["RR"]
    assert curve.per_query.shape == (2, 0)


def test_nothing_found_at_all_is_a_flat_curve() -> None:
    run = Run.from_dict({"q": {"a": 1.0}})
    assert evaluate_at_depths(run, run, {"q": {"b": 1}}, ["RR"], [1, 2])["RR"].mean.tolist() == [
        0,
        0,
    ]


def test_an_empty_first_stage_is_a_flat_curve() -> None:
    run = Run.from_dict({})
    assert evaluate_at_depths(run, run, {"q": {"b": 1}}, ["RR"], [1])["RR"].mean.tolist() == [0]


def test_depths_are_counted_from_one() -> None:
    run = Run.from_dict({"q": {"a": 1.0}})
    with pytest.raises(InputError, match="depths must be positive integers"):
        evaluate_at_depths(run, run, {"q": {"a": 1}}, ["RR"], [0, 1])


def test_the_best_depth_is_the_smallest_with_the_maximum() -> None:
    mean = np.array([0.1, 0.3, 0.3 + 1e-17, 0.2])
    curve = DepthCurve(Measure("RR", 10), np.array([5, 10, 20, 50]), mean, np.empty((4, 0)))
    assert curve.best_depth == 10
    assert [curve.at(depth) for depth in (5, 50, 100)] == [0.1, 0.2, 0.2]  # beyond: the deepest
