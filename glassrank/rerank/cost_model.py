"""Predicts how long work takes on this machine; learned while it runs."""

import threading

import numpy as np
from numpy.typing import NDArray

_DECAY = 0.99
"""Weight of earlier observations at each new one: about the last hundred count."""
TRUSTED = 4.0
"""Work that takes longer than this many predictions was interrupted, and counts as no more than
that: one pause of the machine does not spoil later predictions."""
_SLOWNESS_RATE = 0.2
"""How fast predictions follow a machine that is slower or faster for a while."""
_STRETCH_RATE = 0.5
_MARGIN_RISE, _MARGIN_FALL = 0.3, 0.03
"""How fast the safety margin rises when work runs over it, and falls otherwise: being late is worse
than stopping early, so one late chunk weighs as much as ten others."""

_LIKELY_SIZE = 256.0
_SHORTEST_MS = 0.1


class CostModel:
    """base + rate * size, by least squares over observations, with more weight for newer ones.

    A prediction is this line, times how slow the machine is now, plus a safety margin by which work
    has lately run over it.

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
        """Time that work takes now, as a share of the line."""
        self.margin = 0.0
        """How far work runs over that, as a share of it."""
        self.stretch = 1.0
        """Time of many chunks in a row, as a share of their predictions: here a pause counts in
        full."""
        self._lock = threading.Lock()  # threads share a cost model
        self._weight = self._size = self._square = self._time = self._product = 0.0
        if base or rate:  # the initial guess counts as two observations
            for size in (0.0, _LIKELY_SIZE):
                self._add(size, base + rate * size)

    def predict(self, size: float) -> float:
        """Predicted milliseconds for work of this size, with the safety margin."""
        return (self.base + self.rate * size) * self.slowness * (1 + self.margin)

    def expect(self, size: float) -> float:
        """Expected milliseconds, without the margin."""
        return (self.base + self.rate * size) * self.slowness

    def fitting(self, sizes: NDArray[np.floating], within: float) -> int:
        """How many of these, from the first on, fit in this time as one chunk."""
        line = self.base + self.rate * np.cumsum(sizes)
        predicted = line * self.slowness * (1 + self.margin)
        return int(np.searchsorted(predicted, within, side="right"))

    def size_within(self, ms: float) -> float:
        """The size of a chunk that is predicted to take so long."""
        if self.rate <= 0 or ms == float("inf"):
            return float("inf")
        line = ms / (self.slowness * (1 + self.margin))
        return max(0.0, (line - self.base) / self.rate)

    def learn(self, size: float, took: float) -> None:
        """Work of this size took so many milliseconds."""
        with self._lock:
            line = self.base + self.rate * size
            if self._weight and line > 0:
                took = min(took, TRUSTED * line)
                over = min(1.0, max(0.0, took / (line * self.slowness) - 1))
                rate = _MARGIN_RISE if over > self.margin else _MARGIN_FALL
                self.margin += rate * (over - self.margin)
                self.slowness += _SLOWNESS_RATE * (took / line - self.slowness)
            self._add(size, took)
            self._fit()

    def learn_stretch(self, predicted: float, took: float) -> None:
        """Chunks that were predicted to take so long together took so many milliseconds."""
        if predicted > 0:
            with self._lock:
                self.stretch += _STRETCH_RATE * (took / predicted - self.stretch)

    def relax(self) -> None:
        """Lowers predictions a little when there was no time to try. They change only with new
        observations: a slow moment would otherwise spoil them for good."""
        with self._lock:
            self.margin *= 1 - _MARGIN_FALL
            self.slowness += _MARGIN_FALL * (1 - self.slowness)
            self.stretch += _MARGIN_FALL * (1 - self.stretch)

    def _add(self, size: float, took: float) -> None:
        # Relative errors count: otherwise a few long chunks would drown the short ones, which say
        # what an almost empty chunk costs.
        weight = 1 / max(took, _SHORTEST_MS) ** 2
        self._weight = _DECAY * self._weight + weight
        self._size = _DECAY * self._size + weight * size
        self._square = _DECAY * self._square + weight * size * size
        self._time = _DECAY * self._time + weight * took
        self._product = _DECAY * self._product + weight * size * took

    def _fit(self) -> None:
        spread = self._weight * self._square - self._size**2
        if spread > 1e-6 * self._square * self._weight:
            rate = (self._weight * self._product - self._size * self._time) / spread
            base = (self._time - rate * self._size) / self._weight
            if rate > 0 and base >= 0:
                self.base, self.rate = base, rate
                return
        # All sizes are equal, or the line falls: everything goes by size.
        if self._size > 1e-6 * self._weight:
            self.base, self.rate = 0.0, self._time / self._size
        else:
            self.base, self.rate = self._time / self._weight, 0.0
