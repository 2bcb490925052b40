"""Fits a cascade plan on judged queries: one scoring pass of each model gives the quality of every
choice of depths; the models' speeds say which choices fit a budget.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from glassrank.corpus.runs import trec_order
from glassrank.rerank.cascade_plan import CascadePlan, Planned
from glassrank.research.evaluate.budget_curve import Speed
from glassrank.research.evaluate.evaluate import evaluate
from glassrank.research.evaluate.measures import Floats, Ints, Measure
from glassrank.types import Qrels, Run

BUDGETS_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
_DEPTHS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1000, 2000, 5000)
_MIN_GAIN = 0.001  # the smallest gain that justifies another model
_MAX_LOSS = 0.005
"""The most quality that the first model's depth may cost if the others get no time after all."""


def fit_plan(
    models: Sequence[str],
    first_stage: Run,
    scored: Sequence[Run],
    speeds: Sequence[Speed],
    qrels: Qrels,
    measure: str | Measure,
    time_ms: Mapping[float, float],
) -> CascadePlan:
    """The best depths for each budget. `scored` has every candidate's score by each model, and
    `time_ms` says how much of each budget is left for the models.

    >>> first = Run.from_dict({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})
    >>> fast = Run.from_dict({"q": {"a": 1.0, "b": 0.0, "c": 2.0}})
    >>> strong = Run.from_dict({"q": {"a": 0.0, "b": 9.0, "c": 1.0}})
    >>> speeds = [Speed(docs_per_ms=3.0, query_ms=0.0), Speed(docs_per_ms=1.0, query_ms=1.0)]
    >>> time_ms = {1.0: 1.0, 4.0: 4.0}
    >>> plan = fit_plan(["f", "s"], first, [fast, strong], speeds, {"q": {"b": 1}}, "RR", time_ms)
    >>> [(row.depths, row.value, row.first_alone) for row in plan.budgets]
    [((0, 0), 0.5, 0.5), ((0, 2), 1.0, 0.5)]
    """
    lists = _Lists(first_stage, scored, qrels, Measure.parse(measure))
    rows = []
    for budget, left in sorted(time_ms.items()):
        choices = set(_find_choices(speeds, lists.deepest, left))
        others = (0,) * (len(speeds) - 1)
        alone = max(
            (choice for choice in choices if choice[1:] == others),
            key=lambda choice: _rank_choice(lists, choice, speeds),
        )
        least = lists.value(alone) - _MAX_LOSS
        best = max(
            (choice for choice in choices if lists.value((choice[0], *others)) >= least),
            key=lambda choice: _rank_choice(lists, choice, speeds),
        )
        if lists.value(best) < lists.value(alone) + _MIN_GAIN:
            best = alone
        rows.append(Planned(budget, best, lists.value(best), lists.value(alone)))
    return CascadePlan(tuple(models), str(lists.measure), tuple(rows))


def _find_choices(speeds: Sequence[Speed], within: int, left: float) -> Iterator[tuple[int, ...]]:
    """Depths of all models that take no more than this time, none deeper than the one before."""
    if not speeds:
        yield ()
        return
    most = min(within, int(speeds[0].depth(left)))
    for depth in {0, most, *(depth for depth in _DEPTHS if depth < most)}:
        inner = depth or within  # a model that is not asked changes nothing for those after it
        for rest in _find_choices(speeds[1:], inner, left - float(speeds[0].ms(depth))):
            yield depth, *rest


def _rank_choice(
    lists: "_Lists", choice: tuple[int, ...], speeds: Sequence[Speed]
) -> tuple[float, float]:
    """The better first, and of equals the faster. Equal means may differ in their last bits."""
    took = sum(float(speed.ms(depth)) for speed, depth in zip(speeds, choice, strict=True))
    return round(lists.value(choice), 12), -took


class _Lists:
    """Candidates of all queries with every model's scores."""

    def __init__(
        self, first_stage: Run, scored: Sequence[Run], qrels: Qrels, measure: Measure
    ) -> None:
        self.measure, self._qrels = measure, qrels
        self._known: dict[tuple[int, ...], float] = {}
        by_model = [
            {
                query_id: dict(zip(docs, values, strict=True))
                for query_id, docs, values in run.items()
            }
            for run in scored
        ]
        self._queries: list[tuple[str, list[str], list[Floats]]] = []
        for query_id, docs, scores in first_stage.items():
            if query_id not in qrels:
                continue
            names = [docs[row] for row in trec_order(docs, scores)]
            # What was not scored was too deep for all of them.
            names = [name for name in names if all(name in model[query_id] for model in by_model)]
            columns = [np.array([model[query_id][name] for name in names]) for model in by_model]
            self._queries.append((query_id, names, columns))

    @property
    def deepest(self) -> int:
        """As many candidates as any query has: going deeper changes nothing."""
        return max((len(names) for _, names, _ in self._queries), default=0)

    def value(self, depths: tuple[int, ...]) -> float:
        """The measure's mean when each model goes so deep."""
        if depths not in self._known:
            run = Run.from_rows(self._ranked(depths))
            self._known[depths] = evaluate(run, self._qrels, [self.measure]).mean[str(self.measure)]
        return self._known[depths]

    def _ranked(self, depths: tuple[int, ...]) -> Iterator[tuple[str, list[str], Floats]]:
        for query_id, names, columns in self._queries:
            order = cascade_order(columns, depths)[: self.measure.cutoff]
            scores = -np.arange(len(order), dtype=np.float64)
            yield query_id, [names[place] for place in order], scores


def cascade_order(scores: Sequence[Floats], depths: Sequence[int]) -> Ints:
    """Places in the first stage's order after each model has re-ordered so many of the best.

    >>> cascade_order([np.array([1.0, 3.0, 2.0, 9.0]), np.array([9.0, 1.0, 5.0, 0.0])], (3, 2))
    array([2, 1, 0, 3])
    """
    places = np.arange(len(scores[0]) if scores else 0)
    within = len(places)
    for model_scores, depth in zip(scores, depths, strict=True):
        if depth:
            within = min(depth, within)
            best = places[:within]
            places[:within] = best[np.argsort(-model_scores[best], kind="stable")]
    return places
