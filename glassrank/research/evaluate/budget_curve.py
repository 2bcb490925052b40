"""Quality against milliseconds, as in the TK paper's section 5.2.

In a given time a model re-ranks as many documents as its speed allows. So its quality at every
depth, which one scoring pass tells, and its speed are its quality at every millisecond. The time is
that of the second stage; depth 0, at 0 ms, is the first stage alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from glassrank.errors import InputError
from glassrank.research.evaluate.evaluate import evaluate, evaluate_at_depths
from glassrank.research.evaluate.measures import Floats, Ints, Measure
from glassrank.types import Qrels, Run


@dataclass(frozen=True, slots=True)
class Speed:
    """What one query costs: `query_ms` whatever the depth, then so many documents a millisecond.

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
                "a speed needs more than 0 documents a millisecond and at least 0 ms for the "
                f"query, found {self.docs_per_ms} and {self.query_ms}"
            )

    @classmethod
    def median(cls, docs: ArrayLike, scoring_ms: ArrayLike, query_ms: ArrayLike) -> "Speed":
        """From what was measured again and again: documents scored, and what that took."""
        speeds = np.asarray(docs, np.float64) / np.asarray(scoring_ms, np.float64)
        return cls(float(np.median(speeds)), float(np.median(np.asarray(query_ms, np.float64))))

    def depth(self, ms: ArrayLike) -> Ints:
        """How many documents are re-ranked in that time."""
        left = np.asarray(ms, np.float64) - self.query_ms
        # `ms` of a depth must allow that depth again, though both are rounded.
        return np.floor(np.maximum(left, 0) * self.docs_per_ms + 1e-9).astype(np.int64)

    def ms(self, depth: ArrayLike) -> Floats:
        """How long that takes; a model that re-ranks nothing is not called at all."""
        docs = np.asarray(depth, np.float64)
        return np.where(docs > 0, self.query_ms + docs / self.docs_per_ms, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class TimeCurve:
    """One measure of one model, from the first stage alone to all candidates."""

    measure: Measure
    at_depth: Floats  # (D + 1,), from depth 0 on
    speed: Speed
    chosen: int
    """The depth to use: the best there is, or the one that was best on dev queries."""

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
        """How deep the model comes in that time, with no more than all candidates."""
        return np.minimum(self.speed.depth(ms), len(self.at_depth) - 1)

    def at_ms(self, ms: ArrayLike) -> Floats:
        """The measure when all of that time is used."""
        values: Floats = self.at_depth[self.depth(ms)]
        return values


def depth_values(
    first_stage: Run,
    second_stage: Run,
    qrels: Qrels,
    measures: Sequence[str | Measure],
    deepest: int,
) -> dict[str, Floats]:
    """Each measure at depth 0, which is the first stage alone, 1, and so on to `deepest`.

    >>> first = Run.from_dict({"q": {"a": 3.0, "b": 2.0}})
    >>> second = Run.from_dict({"q": {"a": 0.1, "b": 0.9}})
    >>> depth_values(first, second, {"q": {"b": 1}}, ["RR@10"], 2)["RR@10"].tolist()
    [0.5, 0.5, 1.0]
    """
    alone = evaluate(first_stage, qrels, measures).mean
    curves = evaluate_at_depths(first_stage, second_stage, qrels, measures, range(1, deepest + 1))
    return {name: np.concatenate([[alone[name]], curve.mean]) for name, curve in curves.items()}


def time_curves(
    at_depth: dict[str, Floats], speed: Speed, dev: dict[str, Floats] | None = None
) -> dict[str, TimeCurve]:
    """`dev` has the same measures on other queries: the depth that is best there is taken here.

    >>> values = {"RR@10": np.array([0.2, 0.2, 0.4, 0.3])}
    >>> curve = time_curves(values, Speed(docs_per_ms=2.0, query_ms=1.0))["RR@10"]
    >>> curve.chosen, curve.chosen_ms, curve.chosen_value
    (2, 2.0, 0.4)
    >>> curve.at_ms([0, 1, 2, 3]).tolist()
    [0.2, 0.2, 0.4, 0.3]
    """
    chosen_on = at_depth if dev is None else dev
    return {
        name: TimeCurve(Measure.parse(name), values, speed, _best(chosen_on[name][: len(values)]))
        for name, values in at_depth.items()
    }


def _best(values: Floats) -> int:
    """The smallest depth with the maximum."""
    # Equal means may differ in their last bits, by the order in which they were summed.
    return int(np.argmax(values >= values.max() - 1e-12))
