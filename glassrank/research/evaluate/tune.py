"""Choose the first stage's parameters by a measure on dev queries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from glassrank.errors import InputError
from glassrank.index import BM25, QL, Index, Method, parse_method
from glassrank.research.evaluate.evaluate import evaluate
from glassrank.research.evaluate.measures import Measure
from glassrank.types import Qrels, Query

_BM25 = {
    "k1": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.5),
    "b": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0),
}
_MUS = (50, 100, 200, 300, 500, 700, 1000, 1500, 2000, 2500, 3000, 4000, 6000)
_QL = {"mu": tuple(map(float, _MUS))}
_RM3 = {
    "terms": (5, 10, 20, 40),
    "docs": (3, 5, 10, 20),
    "weight": (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
}


@dataclass(frozen=True)
class Trial:
    """One choice of parameters, and how good it is."""

    method: Method
    value: float
    """Mean of the measure."""


def _get_values(method: Method) -> dict[str, tuple[Any, ...]]:
    """Those of each parameter that are tried; RM3's base is fixed."""
    return _BM25 if isinstance(method, BM25) else _QL if isinstance(method, QL) else _RM3


def make_grid(method: Method) -> list[Method]:
    """The method, and all others that are tried."""
    values = _get_values(method)
    choices = (dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))
    return list(dict.fromkeys([method, *(replace(method, **choice) for choice in choices)]))


def tune(
    index: Index,
    queries: Sequence[Query],
    qrels: Qrels,
    method: str | Method = "bm25",
    measure: str | Measure = "nDCG@10",
) -> Iterator[Trial]:
    """Try the given method, then every other candidate."""
    start = parse_method(method) if isinstance(method, str) else method
    measure = Measure.parse(measure) if isinstance(measure, str) else measure
    judged = [query for query in queries if query.query_id in qrels]
    if not judged:
        raise InputError("no query has a judgment; check that queries and qrels belong together")
    depth = measure.cutoff or 1000
    wanted = {query.query_id: qrels[query.query_id] for query in judged}
    for candidate in make_grid(start):
        run = index.retrieve(judged, depth, candidate)
        yield Trial(candidate, evaluate(run, wanted, [measure]).mean[str(measure)])


def find_edge_parameters(method: Method) -> list[str]:
    """The parameters at the edge of the grid, or beyond it. The bounds 0 and 1 of b do not count.

    >>> find_edge_parameters(BM25(k1=0.3, b=0.4)), find_edge_parameters(BM25(k1=0.9, b=1.0))
    (['k1'], [])
    """
    return [
        name
        for name, tried in _get_values(method).items()
        if name != "b" and not min(tried) < getattr(method, name) < max(tried)
    ]


def find_best(trials: Sequence[Trial]) -> Trial:
    """The best trial; the given method wins a tie."""
    return max(trials, key=lambda trial: trial.value)
