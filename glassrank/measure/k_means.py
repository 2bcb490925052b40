"""k-means: points in groups around their means, and how many groups there should be."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from glassrank.errors import InputError
from glassrank.measure.measures import Floats, Ints

_ROUNDS = 100
_SAMPLE = 2000
_MOST_GROUPS = 60
_LEAST_POINTS = 5
"""Fewer points to a group, on average, are never tried: such groups say nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Points in groups."""

    labels: Ints  # (N,), the group of each point
    centers: Floats  # (K, E)
    inertia: float
    """The sum of squared distances from points to their group's mean."""


def k_means(points: Floats, k: int, *, restarts: int = 4, seed: int = 0) -> Grouping:
    """The best of some attempts, each begun with other centers. Where there are fewer different
    points than `k`, there are fewer groups.

    >>> grouping = k_means(np.array([[0.0], [0.1], [5.0], [5.2]]), 2)
    >>> grouping.labels.tolist(), round(grouping.inertia, 3)
    ([0, 0, 1, 1], 0.025)
    """
    if not 1 <= k <= len(points):
        raise InputError(f"{len(points)} points make 1 to {len(points)} groups, not {k}")
    rng = np.random.default_rng(seed)
    points = np.asarray(points, np.float64)
    different = len(np.unique(points, axis=0))
    attempts = (_settled(points, min(k, different), rng) for _ in range(restarts))
    return _numbered(min(attempts, key=lambda grouping: grouping.inertia))


def _settled(points: Floats, k: int, rng: np.random.Generator) -> Grouping:
    """Lloyd's rounds, until no point changes its group. A center without points stays."""
    centers, labels = _spread(points, k, rng), np.full(len(points), -1)
    for _ in range(_ROUNDS):
        # Squared distances less each point's own square, which changes no order.
        before, labels = labels, ((centers**2).sum(1) - 2 * points @ centers.T).argmin(1)
        if (labels == before).all():
            break
        members = (labels == np.arange(k)[:, None]).astype(np.float64)  # (K, N)
        counts = members.sum(1, keepdims=True)  # (K, 1)
        centers = np.where(counts, members @ points / np.maximum(counts, 1), centers)
    inertia = ((points - centers[labels]) ** 2).sum()
    return Grouping(labels, centers, float(inertia))


def _spread(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """k-means++: points, each drawn with a chance that grows with its squared distance to the
    nearest of those before."""
    chosen = [int(rng.integers(len(points)))]
    nearest = np.full(len(points), np.inf)  # (N,)
    while len(chosen) < k:
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(1))
        chosen.append(int(rng.choice(len(points), p=nearest / nearest.sum())))
    return points[chosen]


def _numbered(grouping: Grouping) -> Grouping:
    """Groups by the first point they have, without those that have none."""
    used, first, labels = np.unique(grouping.labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.argsort(order)
    return Grouping(place[labels], grouping.centers[used[order]], grouping.inertia)


def candidate_ks(points: int) -> list[int]:
    """1, 2, 3, …, then about an eighth more each time.

    >>> candidate_ks(100)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20]
    """
    most = max(1, min(_MOST_GROUPS, points // _LEAST_POINTS))
    ks = [1]
    while ks[-1] < most:
        ks.append(min(most, ks[-1] + max(1, round(ks[-1] / 8))))
    return ks


def inertias(points: Floats, ks: Iterable[int]) -> list[float]:
    """What `elbow` looks at. A sample of many points has the same elbow, in less time."""
    some = np.random.default_rng(0).permutation(len(points))[:_SAMPLE]
    return [k_means(points[some], k, restarts=2).inertia for k in ks]


def elbow(ks: Iterable[int], inertias: Iterable[float]) -> int:
    """The k from which on more groups bring little: where the curve of inertias is farthest below
    the straight line between its ends, when both axes go from 0 to 1.

    >>> elbow([1, 2, 3, 4, 5], [100.0, 40.0, 10.0, 8.0, 6.0])
    3
    """
    k, inertia = np.array(list(ks), np.float64), np.array(list(inertias), np.float64)
    fall = inertia[0] - inertia[-1]
    if len(k) < 3 or fall <= 0:
        return int(k[0])
    across, down = (k - k[0]) / (k[-1] - k[0]), (inertia[0] - inertia) / fall
    return int(k[np.argmax(down - across)])
