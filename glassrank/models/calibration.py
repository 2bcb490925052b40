"""Calibration of scores to probabilities of relevance, which depend on query, document and model
alone; `research/train` fits it.
"""

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError

LARGEST = 1000.0
"""Of a slope and a bias: a hundred times those of any model here."""


@dataclass(frozen=True)
class Calibration:
    """Log odds of relevance are slope * score + bias. The score is the model's own, without the
    first stage's share, which depends on the collection."""

    slope: float
    bias: float

    def __post_init__(self) -> None:
        if not (0 < self.slope <= LARGEST and abs(self.bias) <= LARGEST):
            raise InputError(
                f"usage.calibration: expected a slope above 0 and a bias, neither beyond "
                f"{LARGEST:g}, found {astuple(self)}"
            )

    def probabilities(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Of scores (n,)."""
        return logistic(self.slope * np.asarray(scores, np.float64) + self.bias)


def logistic(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of log odds."""
    chances: NDArray[np.float64] = 1 / (1 + np.exp(-odds.clip(-30, 30)))
    return chances
