"""What work costs on this machine, learned while it runs."""

import threading

import numpy as np
from numpy.typing import NDArray

_FORGET = 0.99
"""How much of what was known stays when something new is seen: about the last hundred count."""
TRUSTED = 4.0
"""What took longer than this many times its prediction was interrupted: it counts no more than
that, so that one pause of the machine does not spoil the predictions after it."""
_FOLLOW = 0.2
"""How fast predictions follow a machine that is slower or faster than usual just now."""
_FOLLOW_STRETCH = 0.5
_RISE, _FALL = 0.3, 0.03
"""How fast the margin follows what runs over it, and what does not: being late is worse than
stopping a little early, so one piece that is late weighs as much as ten that are not."""

_LIKELY_SIZE = 256.0
_SHORTEST_MS = 0.1


class CostModel:
    """base + rate * size, by least squares over what was seen, newer things counting more.

    Predictions are this line, times how slow the machine is just now, and above that by as much as
    work has lately run over it, so that a deadline is seldom missed.

    >>> cost = CostModel(base=1.0, rate=0.5)
    >>> cost.predict(10)
    6.0
    >>> cost.fitting(np.array([4.0, 4.0, 4.0]), within=5.5)
    2
    """

    def __init__(self, base: float = 0.0, rate: float = 0.0) -> None:
        self.base = base
        self.rate = rate
        self.slowness = 1.0
        """What work takes just now, as a share of the line."""
        self.margin = 0.0
        """How far work runs over that, as a share of it."""
        self.stretch = 1.0
        """What many pieces one after the other take, as a share of their predictions: a pause that
        counts for little in one of them is as long as it is."""
        self._lock = threading.Lock()  # threads may share what they learn
        self._weight = self._size = self._square = self._time = self._product = 0.0
        if base or rate:  # what is known beforehand counts as two pieces that were seen
            for size in (0.0, _LIKELY_SIZE):
                self._add(size, base + rate * size)

    def predict(self, size: float) -> float:
        """Milliseconds that work of this size is likely to take."""
        return (self.base + self.rate * size) * self.slowness * (1 + self.margin)

    def expect(self, size: float) -> float:
        """The same without a margin: of many pieces some take longer, and others do not."""
        return (self.base + self.rate * size) * self.slowness

    def fitting(self, sizes: NDArray[np.floating], within: float) -> int:
        """How many of these, from the first on, are predicted to end in time as one piece."""
        line = self.base + self.rate * np.cumsum(sizes)
        predicted = line * self.slowness * (1 + self.margin)
        return int(np.searchsorted(predicted, within, side="right"))

    def size_within(self, ms: float) -> float:
        """The size of work that is predicted to take so long, as one piece."""
        if self.rate <= 0 or ms == float("inf"):
            return float("inf")
        line = ms / (self.slowness * (1 + self.margin))
        return max(0.0, (line - self.base) / self.rate)

    def learn(self, size: float, took: float) -> None:
        """A piece of this size took so many milliseconds."""
        with self._lock:
            line = self.base + self.rate * size
            if self._weight and line > 0:
                took = min(took, TRUSTED * line)
                over = min(1.0, max(0.0, took / (line * self.slowness) - 1))
                self.margin += (_RISE if over > self.margin else _FALL) * (over - self.margin)
                self.slowness += _FOLLOW * (took / line - self.slowness)
            self._add(size, took)
            self._fit()

    def learn_stretch(self, predicted: float, took: float) -> None:
        """Pieces that were predicted to take so long together took so many milliseconds."""
        if predicted > 0:
            with self._lock:
                self.stretch += _FOLLOW_STRETCH * (took / predicted - self.stretch)

    def relax(self) -> None:
        """Nothing could be tried for lack of time. Predictions that were spoilt by a slow moment
        would stay so, since they change only when something is tried."""
        with self._lock:
            self.margin *= 1 - _FALL
            self.slowness += _FALL * (1 - self.slowness)
            self.stretch += _FALL * (1 - self.stretch)

    def _add(self, size: float, took: float) -> None:
        # Errors grow with the time that work takes: what counts is how large a share they are. A
        # few long pieces would drown the short ones otherwise, and with them what a piece costs
        # that is all but empty.
        weight = 1 / max(took, _SHORTEST_MS) ** 2
        self._weight = _FORGET * self._weight + weight
        self._size = _FORGET * self._size + weight * size
        self._square = _FORGET * self._square + weight * size * size
        self._time = _FORGET * self._time + weight * took
        self._product = _FORGET * self._product + weight * size * took

    def _fit(self) -> None:
        spread = self._weight * self._square - self._size**2
        if spread > 1e-6 * self._square * self._weight:
            rate = (self._weight * self._product - self._size * self._time) / spread
            base = (self._time - rate * self._size) / self._weight
            if rate > 0 and base >= 0:
                self.base, self.rate = base, rate
                return
        # Sizes all alike, or a line that slopes the wrong way: all of it goes by size.
        if self._size > 1e-6 * self._weight:
            self.base, self.rate = 0.0, self._time / self._size
        else:
            self.base, self.rate = self._time / self._weight, 0.0
