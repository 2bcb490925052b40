"""How likely each rank is looked at, estimated from the log itself.

A click needs that a user looks at a rank, and likes the document there:

    P(click at rank r) = examined_r * P(liked | score)

Both are estimated by expectation-maximization over the log, with a logistic function of the
model's score for the second: regression EM (X. Wang, N. Golbandi, M. Bendersky, D. Metzler, M.
Najork, "Position bias estimation for unbiased learning to rank in personal search", WSDM 2018). It
needs no query twice, as other estimators do. Clicks then weigh 1 / examined_r (T. Joachims, A.
Swaminathan, T. Schnabel, "Unbiased learning-to-rank with biased feedback", WSDM 2017).
"""

import numpy as np
from numpy.typing import NDArray

from glassrank.research.train.fit_calibration import JudgedScores, fit

_ROUNDS = 30
_LEAST = 0.1
"""Of an examination: a weight above 10 is more noise than help."""


def estimate_examination(
    clicks: NDArray[np.bool_], scores: NDArray[np.floating]
) -> NDArray[np.float64]:
    """The chance (R,) that each rank is looked at, the first being 1; from clicks and the scores of
    what was shown, each (searches, R)."""
    examined = 1 / np.arange(1, clicks.shape[1] + 1)
    flat = (scores - scores.mean()).reshape(-1) / (scores.std() + 1e-9)
    liked = np.full(clicks.shape, max(clicks.mean(), 1e-3))
    for _ in range(_ROUNDS):
        # Where nothing was clicked: looked at and not liked, or not looked at.
        neither = np.maximum(1 - examined * liked, 1e-9)
        was_examined = np.where(clicks, 1.0, examined * (1 - liked) / neither)
        was_liked = np.where(clicks, 1.0, liked * (1 - examined) / neither)
        examined = was_examined.mean(0)
        weights = np.concatenate([was_liked.reshape(-1), 1 - was_liked.reshape(-1)])
        relevant = np.repeat([True, False], len(flat))
        fitted = fit(JudgedScores(np.tile(flat, 2), relevant, weights))
        if fitted is None:
            break
        liked = fitted.probabilities(flat).reshape(clicks.shape)
    return np.asarray(examined / examined.max())


def weigh_clicks(examined: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a click at each rank counts (R,)."""
    return np.asarray(1 / np.maximum(examined, _LEAST))
