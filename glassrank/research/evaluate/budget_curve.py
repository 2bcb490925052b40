"""Quality against milliseconds of the second stage, as in the TK paper's section 5.2: from the
quality at every depth and the model's speed. Depth 0, at 0 ms, is the first stage alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from glassrank.errors import InputError
from glassrank.research.evaluate.evaluate import evaluate, evaluate_at_depths, find_first_best
from glassrank.research.evaluate.measures import Floats, Ints, Measure
from glassrank.types import Qrels, Run


@dataclass(frozen=True, slots=True)
class Speed:
    """The cost of a query: `query_ms` at any depth, then so many documents per millisecond.

    >>> speed = Speed(docs_per_ms=2.0, query_ms=3.0)
    >>> speed.depth([0, 3, 4, 10.6]).tolist()
    [0, 0, 2, 15]
    >>> speed.ms([0, 1, 15]).tolist()
    [0.0, 3.5, 10.5]
    """

    docs_per_ms: float
    query_ms: float

    def __post_init__(self) -> None:
        if not (self.docs_per_ms > 0 and self.query_ms >= 0):
            raise InputError(
                "expected more than 0 documents per millisecond and at least 0 ms for the query, "
                f"found {self.docs_per_ms} and {self.query_ms}"
            )

    @classmethod
    def median(cls, docs: ArrayLike, scoring_ms: ArrayLike, query_ms: ArrayLike) -> "Speed":
        """The median of repeated timings."""
        speeds = np.asarray(docs, np.float64) / np.asarray(scoring_ms, np.float64)
        return cls(float(np.median(speeds)), float(np.median(np.asarray(query_ms, np.float64))))

    def depth(self, ms: ArrayLike) -> Ints:
        """The number of documents re-ranked in that time."""
        left = np.asarray(ms, np.float64) - self.query_ms
        # depth(ms(d)) must be d, despite rounding.
        return np.floor(np.maximum(left, 0) * self.docs_per_ms + 1e-9).astype(np.int64)

    def ms(self, depth: ArrayLike) -> Floats:
        """The time for that depth; 0 for depth 0, where the model is not called."""
        docs = np.asarray(depth, np.float64)
        return np.where(docs > 0, self.query_ms + docs / self.docs_per_ms, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class TimeCurve:
    """One measure of one model, from the first stage alone to all candidates."""

    measure: Measure
    at_depth: Floats  # (D + 1,), from depth 0 on
    speed: Speed
    chosen: int
    """The depth to use: the best here, or the best on dev queries."""

    @property
    def chosen_value(self) -> float:
        """The measure at the chosen depth."""
        return float(self.at_depth[self.chosen])

    @property
    def chosen_ms(self) -> float:
        """The time that the chosen depth takes."""
        return float(self.speed.ms(self.chosen))

    @property
    def all_ms(self) -> float:
        """The time that all candidates take."""
        return float(self.speed.ms(len(self.at_depth) - 1))

    def depth(self, ms: ArrayLike) -> Ints:
        """The depth that the model reaches in that time, at most all candidates."""
        return np.minimum(self.speed.depth(ms), len(self.at_depth) - 1)

    def at_ms(self, ms: ArrayLike) -> Floats:
        """The measure with that much time."""
        values: Floats = self.at_depth[self.depth(ms)]
        return values


def evaluate_by_depth(
    first_stage: Run,
    second_stage: Run,
    qrels: Qrels,
    measures: Sequence[str | Measure],
    deepest: int,
) -> dict[str, Floats]:
    """Each measure at depth 0 (the first stage alone), 1, …, `deepest`.

    >>> first = Run.from_dict({"q": {"a": 3.0, "b": 2.0}})
    >>> second = Run.from_dict({"q": {"a": 0.1, "b": 0.9}})
    >>> evaluate_by_depth(first, second, {"q": {"b": 1}}, ["RR@10"], 2)["RR@10"].tolist()
    [0.5, 0.5, 1.0]
    """
    alone = evaluate(first_stage, qrels, measures).mean
    curves = evaluate_at_depths(first_stage, second_stage, qrels, measures, range(1, deepest + 1))
    return {name: np.concatenate([[alone[name]], curve.mean]) for name, curve in curves.items()}


def make_time_curves(
    at_depth: dict[str, Floats], speed: Speed, dev: dict[str, Floats] | None = None
) -> dict[str, TimeCurve]:
    """Curves whose depth is chosen on `dev`, values of other queries, if given.

    >>> values = {"RR@10": np.array([0.2, 0.2, 0.4, 0.3])}
    >>> curve = make_time_curves(values, Speed(docs_per_ms=2.0, query_ms=1.0))["RR@10"]
    >>> curve.chosen, curve.chosen_ms, curve.chosen_value
    (2, 2.0, 0.4)
    >>> curve.at_ms([0, 1, 2, 3]).tolist()
    [0.2, 0.2, 0.4, 0.3]
    """
    chosen_on = at_depth if dev is None else dev
    return {
        name: TimeCurve(
            Measure.parse(name), values, speed, find_first_best(chosen_on[name][: len(values)])
        )
        for name, values in at_depth.items()
    }
