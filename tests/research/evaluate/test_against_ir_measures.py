"""Every measure against ir-measures, and so against trec_eval, gdeval and MS MARCO's script."""

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from random_runs import RunDict, cases

from glassrank.research.evaluate import evaluate, evaluate_at_cutoffs
from glassrank.types import Qrels, Run

ir_measures = pytest.importorskip("ir_measures")
pytest.importorskip("pytrec_eval")

# Its parser of names uses ast.Num and its attribute n, which warn from Python 3.12 on.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:(ast\.|Attribute [ns] is):DeprecationWarning:ir_measures\.util"
)

Values = dict[str, dict[str, float]]

# RR@k is not here: trec_eval has no cutoff for it.
TREC = [
    *["RR", "RR(rel=2)", "AP", "AP(rel=2)", "AP@5", "AP(rel=3)@10", "nDCG", "nDCG@1", "nDCG@10"],
    *["P@1", "P@20", "P(rel=2)@5", "R@3", "R@100", "R(rel=2)@10", "Rprec", "Rprec(rel=2)", "Bpref"],
]


def oracle(
    provider: str, names: list[str], run: RunDict, qrels: Qrels, judged_only: bool = False
) -> Values:
    measures = {ir_measures.parse_measure(name): name for name in names}
    # Bpref never looks at others, and so has no such setting.
    asked = [m(judged_only=True) if judged_only and m.NAME != "Bpref" else m for m in measures]
    by_name = dict(zip(map(str, asked), measures.values(), strict=True))
    values: Values = {name: {} for name in names}
    for metric in ir_measures.providers.registry[provider].iter_calc(asked, qrels, run):
        values[by_name[str(metric.measure)]][metric.query_id] = metric.value
    return values


def ours(names: list[str], run: RunDict, qrels: Qrels, judged_only: bool = False) -> Values:
    result = evaluate(Run.from_dict(run), qrels, names, judged_only)
    return {
        name: dict(zip(result.query_ids, result.per_query[name].tolist(), strict=True))
        for name in names
    }


def assert_same(found: Values, expected: Values, tolerance: float = 1e-12) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, abs=tolerance), name


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_trec_eval_measures(case: tuple[RunDict, Qrels]) -> None:
    assert_same(ours(TREC, *case), oracle("pytrec_eval", TREC, *case))


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_judged_only(case: tuple[RunDict, Qrels]) -> None:
    assert_same(ours(TREC, *case, True), oracle("pytrec_eval", TREC, *case, True))


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_all_cutoffs_at_once(case: tuple[RunDict, Qrels]) -> None:
    run, qrels = case
    cutoffs = range(1, 41)
    found = evaluate_at_cutoffs(Run.from_dict(run), qrels, ["AP", "nDCG", "P", "R(rel=2)"], cutoffs)
    names = [f"{name}@{cutoff}" for name in found for cutoff in cutoffs]
    expected = oracle("pytrec_eval", names, run, qrels)
    for name, values in found.items():
        for cutoff, at_cutoff in zip(cutoffs, values, strict=True):
            by_query = dict(zip(qrels, at_cutoff.tolist(), strict=True))
            assert by_query == pytest.approx(expected[f"{name}@{cutoff}"], abs=1e-12)


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_set_measures_are_those_without_cutoff(case: tuple[RunDict, Qrels]) -> None:
    found, expected = ours(["P", "R"], *case), oracle("pytrec_eval", ["SetP", "SetR"], *case)
    assert found["P"] == pytest.approx(expected["SetP"], abs=1e-12)
    assert found["R"] == pytest.approx(expected["SetR"], abs=1e-12)


@given(case=cases(ties=False))
@settings(max_examples=40, deadline=None)
def test_reciprocal_rank_with_cutoff_without_ties(case: tuple[RunDict, Qrels]) -> None:
    names = ["RR@1", "RR@10", "RR(rel=2)@3"]
    assert_same(ours(names, *case), oracle("msmarco", names, *case))


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_reciprocal_rank_with_cutoff_with_ties(case: tuple[RunDict, Qrels]) -> None:
    # ir-measures gives RR@k to MS MARCO's script, which breaks ties by document id ascending,
    # against trec_eval's descending. We keep one order for all measures, so the oracle for ties
    # is trec_eval's RR, cut off by hand.
    full = oracle("pytrec_eval", ["RR"], *case)["RR"]
    expected = {query: value if value >= 1 / 3 else 0.0 for query, value in full.items()}
    assert ours(["RR@3"], *case)["RR@3"] == pytest.approx(expected)


@pytest.mark.skipif(not shutil.which("perl"), reason="gdeval needs perl")
@given(case=cases())
@settings(max_examples=10, deadline=None)
def test_err(case: tuple[RunDict, Qrels]) -> None:
    names = ["ERR@1", "ERR@20", "nDCG(dcg='exp-log2')@20"]
    # gdeval prints five decimals.
    assert_same(ours(names, *case), oracle("gdeval", names, *case), tolerance=5.1e-6)


def test_scores_are_compared_in_single_precision_as_in_trec_eval() -> None:
    run, qrels = {"1": {"a": 1.0000000002, "b": 1.0000000001}}, {"1": {"a": 1}}
    assert (
        ours(["RR"], run, qrels) == oracle("pytrec_eval", ["RR"], run, qrels) == {"RR": {"1": 0.5}}
    )


@given(case=cases())
@settings(max_examples=20, deadline=None)
def test_means(case: tuple[RunDict, Qrels]) -> None:
    run, qrels = case
    asked = [ir_measures.parse_measure(name) for name in TREC]
    expected = ir_measures.pytrec_eval.calc_aggregate(asked, qrels, run)
    found = evaluate(Run.from_dict(run), qrels, TREC).mean
    assert found == pytest.approx({str(measure): value for measure, value in expected.items()})
    assert np.isfinite(list(found.values())).all()
