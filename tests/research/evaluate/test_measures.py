"""Names of measures, ERR by its formula, and runs that cannot be measured."""

import numpy as np
import pytest
from hypothesis import given, settings
from random_runs import RunDict, cases

from glassrank.errors import InputError
from glassrank.research.evaluate import Measure, evaluate, evaluate_at_cutoffs, evaluate_at_depths
from glassrank.types import Qrels, Run


@pytest.mark.parametrize(
    "text",
    [
        *["RR@10", "nDCG@10", "AP", "RR(rel=2)@10", "AP(rel=2)", "ERR@20", "Rprec", "Bpref"],
        *["nDCG(dcg='exp-log2')@20", "RBP(p=0.95)", "RBP(rel=2,p=0.5)@10", "Judged@10"],
    ],
)
def test_measures_print_as_they_are_written(text: str) -> None:
    assert str(Measure.parse(text)) == repr(Measure.parse(text)) == text


def test_parsed_and_written_measures_are_equal() -> None:
    assert Measure.parse("RR(rel=2)@10") == Measure("RR", cutoff=10, rel=2)
    assert Measure.parse(" P ( rel = 1 ) @ 5 ") == Measure("P", 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ndcg@10", r"'ndcg' is not known; did you mean nDCG\? measures are RR, AP"),
        ("MRR@10", r"did you mean RR\?"),
        ("recall@10", r"did you mean R\?"),
        (
            "zebra",
            "'zebra' is not known; measures are RR, AP, P, R, RBP, Rprec, nDCG, ERR, Bpref, Judged",
        ),
        ("Rprec@10", "Rprec is of the whole list and takes no cutoff"),
        ("P(p=0.5)@10", "p is of RBP alone"),
        ("ERR(dcg=exp-log2)@10", "of nDCG alone"),
        ("nDCG(dcg=square)@10", "dcg is log2 or exp-log2"),
        ("Bpref(rel=2)", "takes no rel"),
        ("RBP(p=1.2.3)", "p is no number"),
        ("RR@", "'RR@' is not a measure; expected a name"),
        ("RR(min=2)@10", "is not a measure"),
        ("RR@0", "needs a cutoff of at least 1, found 0"),
        ("RR(rel=0)", "needs rel of at least 1, found 0"),
        ("nDCG(rel=2)@10", "nDCG reads the grades themselves and takes no rel"),
    ],
)
def test_wrong_names_are_explained(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Measure.parse(text)


def err_by_formula(grades: list[int], cutoff: int) -> float:
    """Chapelle et al. 2009: sum over ranks of 1/r * R_r * product over earlier ranks of (1 - R)."""
    stop = [(2 ** max(grade, 0) - 1) / 2**4 for grade in grades[:cutoff]]
    return sum(
        1 / rank * stop[rank - 1] * np.prod([1 - earlier for earlier in stop[: rank - 1]])
        for rank in range(1, len(stop) + 1)
    )


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_err_is_its_formula(case: tuple[RunDict, Qrels]) -> None:
    run, qrels = case
    found = evaluate(Run.from_dict(run), qrels, ["ERR", "ERR@3"])
    at_cutoffs = evaluate_at_cutoffs(Run.from_dict(run), qrels, ["ERR"], [3, 100])["ERR"]
    for i, query in enumerate(found.query_ids):
        docs = run.get(query, {})
        ranked = sorted(docs, key=lambda doc: (docs[doc], doc), reverse=True)
        grades = [qrels[query].get(doc, 0) for doc in ranked]
        assert found.per_query["ERR"][i] == pytest.approx(err_by_formula(grades, 100))
        assert found.per_query["ERR@3"][i] == pytest.approx(err_by_formula(grades, 3))
        assert at_cutoffs[:, i] == pytest.approx([err_by_formula(grades, k) for k in (3, 100)])


def test_reciprocal_rank_at_all_cutoffs() -> None:
    run = Run.from_dict({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})
    values = evaluate_at_cutoffs(run, {"q": {"b": 1, "c": 1}}, ["RR"], [1, 2, 3])["RR"]
    assert values.tolist() == [[0], [1 / 2], [1 / 2]]


def test_cutoffs_keep_the_order_given() -> None:
    run = Run.from_dict({"q": {"a": 2.0, "b": 1.0}})
    values = evaluate_at_cutoffs(run, {"q": {"b": 1}}, ["R"], [10**9, 1, 2])["R"]
    assert values.tolist() == [[1], [0], [1]]


def test_negative_grades_count_as_unjudged() -> None:
    run = Run.from_dict({"q": {"spam": 2.0, "a": 1.0}})
    qrels = {"q": {"spam": -2, "a": 1}}
    assert evaluate(run, qrels, ["RR"]).mean["RR"] == 1 / 2
    assert evaluate(run, qrels, ["RR"], judged_only=True).mean["RR"] == 1


def test_an_empty_run_scores_zero() -> None:
    assert evaluate(Run.from_dict({}), {"q": {"a": 1}}, ["AP", "P"]).mean == {"AP": 0, "P": 0}


def test_scores_beyond_single_precision_keep_their_side() -> None:
    run = Run.from_dict({"q": {"a": 1e300, "b": -1e300, "c": 0.0}})
    assert evaluate(run, {"q": {"c": 1}}, ["RR"]).mean["RR"] == 1 / 2


GOOD = Run.from_dict({"q": {"a": 1.0}})


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        (Run.from_dict({"q": {"a": float("nan")}}), {"q": {"a": 1}}, "NaN"),
        (GOOD, {}, "judgments are empty"),
        (GOOD, {"q": {"a": 5}}, "ERR takes grades up to 4, found 5"),
        (Run.from_rows([("q", ["a", "a"], np.ones(2))]), {"q": {"a": 1}}, "document 'a' twice"),
        (Run.from_rows([("q", ["a"], np.ones(1))] * 2), {"q": {"a": 1}}, "has a query twice"),
    ],
)
def test_bad_input_is_explained(run: Run, qrels: Qrels, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(run, qrels, ["ERR@20"])


def test_err_checks_grades_that_were_not_found_too() -> None:
    with pytest.raises(InputError, match="found 5"):
        evaluate(GOOD, {"q": {"b": 5}}, ["ERR"])


@pytest.mark.parametrize("cutoffs", [[], [0], [1.5]])
def test_bad_cutoffs_are_explained(cutoffs: list[float]) -> None:
    with pytest.raises(InputError, match="cutoffs must be positive integers"):
        evaluate_at_cutoffs(GOOD, {"q": {"a": 1}}, ["P"], cutoffs)


def test_a_measure_with_a_cutoff_has_no_other_cutoffs() -> None:
    with pytest.raises(InputError, match="P@5 has a cutoff"):
        evaluate_at_cutoffs(GOOD, {"q": {"a": 1}}, ["P@5"], [1])


def by_hand(name: str, ranked: list[str], grades: dict[str, int]) -> float:
    """The definitions, document by document."""
    relevant = [doc for doc, grade in grades.items() if grade > 0]
    others = [doc for doc, grade in grades.items() if grade == 0]
    hits = [grades.get(doc, 0) > 0 for doc in ranked]
    if name == "Rprec":
        return sum(hits[: len(relevant)]) / max(1, len(relevant))
    if name == "RBP(p=0.5)@6":
        return sum(0.5 * 0.5**place for place, hit in enumerate(hits[:6]) if hit)
    if name == "Judged@6":
        return sum(grades.get(doc, -1) >= 0 for doc in ranked[:6]) / max(1, len(ranked[:6]))
    if name == "Bpref":
        total = 0.0
        for place, doc in enumerate(ranked):
            if doc in relevant:
                above = sum(other in others for other in ranked[:place])
                least = min(len(relevant), len(others))
                total += 1 - min(above, len(relevant)) / least if above else 1.0
        return total / max(1, len(relevant))
    best = sorted((2**g - 1 for g in grades.values() if g > 0), reverse=True)[:6]
    gain = [2 ** max(grades.get(doc, 0), 0) - 1 for doc in ranked[:6]]
    ideal = sum(value / np.log2(place + 2) for place, value in enumerate(best))
    return sum(v / np.log2(place + 2) for place, v in enumerate(gain)) / ideal if ideal else 0.0


@settings(max_examples=60, deadline=None)
@given(case=cases(ties=False))
@pytest.mark.parametrize(
    "name", ["Rprec", "RBP(p=0.5)@6", "Judged@6", "Bpref", "nDCG(dcg='exp-log2')@6"]
)
def test_measures_of_the_papers_by_hand(name: str, case: tuple[RunDict, Qrels]) -> None:
    run, qrels = case
    values = evaluate(Run.from_dict(run), qrels, [name]).per_query[name]
    for query_id, value in zip(qrels, values.tolist(), strict=True):
        scores = run.get(query_id, {})
        ranked = sorted(scores, key=lambda doc: scores[doc], reverse=True)
        assert value == pytest.approx(by_hand(name, ranked, qrels[query_id])), query_id


@pytest.mark.parametrize("name", ["Rprec", "Bpref", "Judged@5"])
def test_measures_of_whole_lists_are_not_of_depths(name: str) -> None:
    run = Run.from_dict({"q": {"a": 1.0}})
    with pytest.raises(InputError, match="needs whole lists"):
        evaluate_at_depths(run, run, {"q": {"a": 1}}, [name])
