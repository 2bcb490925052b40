"""Two models compared online: `glassrank serve --interleave MODEL`.

A share of the searches shows a team-draft interleaving (F. Radlinski, M. Kurup, T. Joachims, "How
does clickthrough data reflect retrieval quality?", CIKM 2008): by turns, in random order, each
model adds its best document that is not in the list yet. A document that both would add next
belongs to neither. The first click on a document of one model is a win for it, and later ones do
not count, so that a search gives one independent outcome at most.

The interval of the share of wins is a confidence sequence: it holds at every moment at once, so
that one may look at it after every click. A comparison is decided when 1/2 is outside, and not
before 100 wins: most false alarms are streaks at the beginning. The interval is the beta-binomial
mixture of H. Robbins (1970), see S. Howard, A. Ramdas, J. McAuliffe, J. Sekhon, "Time-uniform,
nonparametric, nonasymptotic confidence sequences", Annals of Statistics 2021.
"""

import random
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from math import lgamma, log
from typing import Any, TypeVar

ALPHA = 0.05
"""The chance that the interval ever misses the truth."""
_FEWEST = 100
"""Wins before a comparison is decided."""
_HALVINGS = 50

Item = TypeVar("Item", bound=Hashable)


def draft_teams(
    first: Sequence[Item], second: Sequence[Item], k: int, coin: random.Random
) -> list[tuple[Item, int | None]]:
    """The best k of both rankings, each with the number of its team, 0 or 1; None for neither.

    >>> draft_teams("abc", "acd", 3, random.Random(0))
    [('a', None), ('c', 1), ('b', 0)]
    """
    drafted: dict[Item, int | None] = {}
    rankings = first, second
    while len(drafted) < k:
        heads = [next((item for item in each if item not in drafted), None) for each in rankings]
        if heads[0] == heads[1]:
            if heads[0] is None:
                break
            drafted[heads[0]] = None
            continue
        for team in (0, 1) if coin.random() < 0.5 else (1, 0):
            head = next((item for item in rankings[team] if item not in drafted), None)
            if head is not None and len(drafted) < k:
                drafted[head] = team
    return list(drafted.items())


def refutes(wins: int, trials: int, p: float, alpha: float = ALPHA) -> bool:
    """Whether so many wins refute the probability p: a uniform mixture of all probabilities, a
    martingale if p is the truth, explains them 1 / alpha times as well."""
    losses = trials - wins
    mixture = lgamma(wins + 1) + lgamma(losses + 1) - lgamma(trials + 2)
    return mixture - wins * log(p) - losses * log(1 - p) >= log(1 / alpha)


def confidence_interval(wins: int, trials: int, alpha: float = ALPHA) -> tuple[float, float]:
    """The probabilities of a win that are not refuted by now, however often one has looked.

    >>> [round(end, 3) for end in confidence_interval(60, 100)]
    [0.441, 0.746]
    """
    if not trials:
        return 0.0, 1.0
    mean, ends = wins / trials, []
    for outside in (0.0, 1.0):
        inside = mean
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            if not 0 < middle < 1 or refutes(wins, trials, middle, alpha):
                outside = middle
            else:
                inside = middle
        ends.append(inside)
    return ends[0], ends[1]


def is_decided(wins: int, trials: int) -> bool:
    """Whether one model is better, at a level of `ALPHA` for the whole comparison."""
    return trials >= _FEWEST and refutes(wins, trials, 0.5)


class Interleaving:
    """The wins of two models, and the searches that wait for a click."""

    def __init__(self, models: tuple[str, str], share: float, most_open: int) -> None:
        self.models = models
        self._share = share
        self._most_open = most_open
        self._open: OrderedDict[str, dict[Any, int | None]] = OrderedDict()
        self._wins = [0, 0]
        self._shown = 0
        self._decided = ""
        self._coin = random.Random()
        self._lock = threading.Lock()

    def draw(self) -> bool:
        """Whether the next search is interleaved."""
        return self._coin.random() < self._share

    def draft(
        self, query_id: str, first: Sequence[Any], second: Sequence[Any], k: int
    ) -> list[Any]:
        """Interleaves the ids that two models rank, and remembers whose they are."""
        with self._lock:
            teams = draft_teams(first, second, k, self._coin)
            self._open[query_id] = dict(teams)
            self._shown += 1
            if len(self._open) > self._most_open:
                self._open.popitem(last=False)
        return [doc_id for doc_id, _ in teams]

    def click(self, query_id: str, doc_id: str) -> None:
        """Counts the first click on a document of a team."""
        with self._lock:
            team = self._open.get(query_id, {}).get(doc_id)
            if team is None:
                return
            del self._open[query_id]
            self._wins[team] += 1
            if not self._decided and is_decided(self._wins[1], sum(self._wins)):
                self._decided = self.models[self._wins[1] > self._wins[0]]

    def state(self) -> dict[str, Any]:
        """The wins, the interval of the second model's share of them, and the winner if it is
        decided; what is decided stays so, since a decision ends a comparison."""
        with self._lock:
            trials = sum(self._wins)
            return {
                "models": list(self.models),
                "searches": self._shown,
                "wins": list(self._wins),
                "share": self._wins[1] / trials if trials else None,
                "interval": list(confidence_interval(self._wins[1], trials)),
                "decided": self._decided or None,
            }
