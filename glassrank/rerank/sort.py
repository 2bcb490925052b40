"""The order of candidates of which only some have been scored."""

import numpy as np
from numpy.typing import NDArray


def sort_scored(
    scores: NDArray[np.float32], total: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Places and scores of all `total` candidates, of which the first have these `scores`: those by
    descending score, the rest below them in their order, with scores that fall by one."""
    order = np.argsort(-scores, kind="stable")
    places = np.concatenate([order, np.arange(len(scores), total)])
    lowest = float(scores[order[-1]]) if len(order) else 0.0
    below = lowest - 1 - np.arange(total - len(scores))
    return places, np.concatenate([scores[order].astype(np.float64), below])
