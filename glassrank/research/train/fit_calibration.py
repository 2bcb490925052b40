"""Fits a calibration, by Platt scaling on judged queries, and measures it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassrank.models.calibration import LARGEST, Calibration, logistic

_STEPS = 50
_RIDGE = 1e-3
_BINS = 10


@dataclass(frozen=True)
class JudgedScores:
    """Judged documents of many queries, with a model's own scores."""

    scores: NDArray[np.floating]  # (n,)
    relevant: NDArray[np.bool_]  # (n,)
    weights: NDArray[np.floating]  # (n,) how many documents each stands for


@dataclass(frozen=True)
class Quality:
    """How good probabilities are on judged documents."""

    brier: float
    """The mean of (probability - relevance) squared."""
    brier_of_mean: float
    """The same of the mean probability for all: no calibration at all."""
    error: float
    """Expected calibration error: how far probabilities are from frequencies, over ten bins of as
    many documents each."""


def fit(judged: JudgedScores) -> Calibration | None:
    """Fits by Newton's method with a small ridge. None where scores do not separate relevance."""
    relevant = judged.relevant.astype(np.float64)
    if not 0 < relevant.sum() < len(relevant):
        return None
    scores = np.asarray(judged.scores, np.float64)
    features = np.stack([scores, np.ones(len(scores))], axis=1)  # (n, 2)
    weights = np.zeros(2)
    for _ in range(_STEPS):
        expected = logistic(features @ weights)
        gradient = features.T @ (judged.weights * (relevant - expected)) - _RIDGE * weights
        spread = judged.weights * expected * (1 - expected)
        hessian = (features * spread[:, None]).T @ features + _RIDGE * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        weights += step
        if np.abs(step).max() < 1e-9:
            break
    slope, bias = weights.tolist()
    if not (0 < slope <= LARGEST and abs(bias) <= LARGEST):
        return None
    return Calibration(slope, bias)


def measure_quality(probabilities: NDArray[np.float64], judged: JudgedScores) -> Quality:
    """Compares probabilities with judgments."""
    truth = judged.relevant.astype(np.float64)
    weights = judged.weights / judged.weights.sum()
    order = np.argsort(probabilities, kind="stable")
    middles = np.cumsum(weights[order]) - weights[order] / 2
    bins = np.minimum((middles * _BINS).astype(int), _BINS - 1)
    gaps = (weights * (probabilities - truth))[order]
    error = np.abs(np.bincount(bins, gaps, _BINS)).sum()
    mean = float(weights @ truth)
    brier = float(weights @ (probabilities - truth) ** 2)
    return Quality(brier, mean * (1 - mean), float(error))


def concatenate(parts: Sequence[JudgedScores]) -> JudgedScores:
    """Concatenates queries, or collections, of equal total weight."""
    return JudgedScores(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.relevant for part in parts]),
        np.concatenate([part.weights / part.weights.sum() for part in parts]),
    )


def weigh_ranks(ranks: NDArray[np.integer]) -> NDArray[np.float64]:
    """Weights by first-stage rank: the first ten count as much as the first hundred."""
    weights: NDArray[np.float64] = (ranks <= 10) / 10 + (ranks <= 100) / 100
    return weights
