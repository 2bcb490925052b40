"""From scores to probabilities of relevance: logistic regression on judged queries.

A score by itself does not tell: its size depends on the query, on how many words it has and how
rare they are. Where it stands among the scores of the other candidates, and how many these are,
does, from one query to the next. Within one query the order stays what it was.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError

_AMONG = 30
"""Candidates, the first stage's best, whose mean a score is compared with, at any depth."""
_LENGTHS = (2, 3, 5, 10, 20, 30)
"""Of lists: as deep as a budget allows, or as people give them. Each counts the same."""
_HOLDS = 0.5
"""How many lists that people give hold a relevant text, for want of better knowledge."""
_STEPS = 50
_RIDGE = 1e-3


@dataclass(frozen=True)
class Calibration:
    """What each thing that is known of a score weighs in the log odds of relevance."""

    score: float
    above_mean: float
    """Of the score less the mean of the first candidates' scores."""
    below_best: float
    """Of the score less the best one."""
    count: float
    """Of the logarithm of the number of candidates: the more, the less probable is each."""
    bias: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, astuple(self))) or self.slope < 0:
            raise InputError(
                "usage.calibration: expected finite numbers by which a higher score is never less "
                f"probable, found {astuple(self)}"
            )

    @property
    def slope(self) -> float:
        """What a score of 1 more adds to the log odds."""
        return self.score + self.above_mean + self.below_best

    def probabilities(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Of candidates in the first stage's order: (n,) to (n,)."""
        values = np.asarray(scores, np.float64)
        if not len(values):
            return values
        odds = self.slope * values + self.count * math.log(min(len(values), _AMONG)) + self.bias
        odds -= self.above_mean * values[:_AMONG].mean() + self.below_best * values.max()
        return _logistic(odds)


@dataclass(frozen=True)
class JudgedScores:
    """Candidates of one query, in the first stage's order."""

    scores: NDArray[np.floating]  # (n,)
    relevant: NDArray[np.bool_]  # (n,)


@dataclass(frozen=True)
class Quality:
    """Of probabilities on lists of queries that they were not fitted on."""

    lists: int
    brier: float
    """The mean of (probability - relevance) squared."""
    brier_of_mean: float
    """The same of the one probability that all have on the average: no calibration at all."""
    error: float
    """How far probabilities are from frequencies, over ten bins (expected calibration error)."""


def calibrate(
    queries: Sequence[JudgedScores], *, drawn: bool = False
) -> tuple[Calibration, Quality] | None:
    """Fitted on every other query and measured on those between, over lists of several lengths: the
    first candidates, or `drawn` ones, as people give them. None where scores do not tell."""
    fitted_on, measured_on = (list(_lists(some, drawn)) for some in (queries[::2], queries[1::2]))
    calibration = fit(fitted_on)
    if calibration is None or not measured_on:
        return None
    return calibration, quality(calibration, measured_on)


def fit(lists: Sequence[JudgedScores]) -> Calibration | None:
    """By Newton's method, with a little pull towards zero."""
    if not lists:
        return None
    relevant = np.concatenate([ranked.relevant for ranked in lists]).astype(np.float64)
    if not 0 < relevant.sum() < len(relevant):
        return None
    features = np.concatenate([_features(ranked.scores) for ranked in lists])  # (n, 5)
    counts = _weights(lists)
    weights = np.zeros(features.shape[1])
    for _ in range(_STEPS):
        expected = _logistic(features @ weights)
        slope = features.T @ (counts * (relevant - expected)) - _RIDGE * weights
        curve = (features * (counts * expected * (1 - expected))[:, None]).T @ features
        step = np.linalg.solve(curve + _RIDGE * np.eye(len(weights)), slope)
        weights += step
        if np.abs(step).max() < 1e-9:
            break
    if not np.isfinite(weights).all() or weights[:3].sum() <= 0:
        return None
    return Calibration(*weights.tolist())


def _logistic(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    chances: NDArray[np.float64] = 1 / (1 + np.exp(-odds.clip(-30, 30)))
    return chances


def _features(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    values = np.asarray(scores, np.float64)
    count = np.full(len(values), math.log(len(values)))
    differences = values - values.mean(), values - values.max()
    return np.stack([values, *differences, count, np.ones(len(values))], axis=1)


def _weights(lists: Sequence[JudgedScores]) -> NDArray[np.float64]:
    """Of each candidate: those of one list have 1 in all."""
    return np.concatenate([np.full(len(ranked.scores), 1 / len(ranked.scores)) for ranked in lists])


def quality(calibration: Calibration, lists: Sequence[JudgedScores]) -> Quality:
    """Of its probabilities on judged lists."""
    told = np.concatenate([calibration.probabilities(ranked.scores) for ranked in lists])
    truth = np.concatenate([ranked.relevant for ranked in lists]).astype(np.float64)
    weights = _weights(lists) / len(lists)
    bins = np.minimum((told * 10).astype(int), 9)
    gaps = [abs((weights * (told - truth))[bins == number].sum()) for number in range(10)]
    mean = float(weights @ truth)
    return Quality(
        len(lists), float(weights @ (told - truth) ** 2), mean * (1 - mean), float(sum(gaps))
    )


def _lists(queries: Sequence[JudgedScores], drawn: bool) -> Iterator[JudgedScores]:
    """Of each query's candidates, the same every time."""
    random = np.random.default_rng(0)
    for query in queries:
        for length in _LENGTHS:
            places = _drawn(query, length, random) if drawn else np.arange(len(query.scores))
            places = places[:length]
            if len(places):
                yield JudgedScores(query.scores[places], query.relevant[places])


def _drawn(query: JudgedScores, length: int, random: np.random.Generator) -> NDArray[np.int64]:
    relevant, others = (
        random.permutation(np.flatnonzero(query.relevant == grade)) for grade in (True, False)
    )
    holds = int(random.random() < _HOLDS)
    return np.concatenate([relevant[:holds], others[: length - holds]])
