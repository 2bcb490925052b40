"""A time budget: work is done in pieces, and no piece begins that is predicted to end too late."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassrank.deadline import Deadline
from glassrank.rank.cost import CostModel

_LONGEST_MS = 8.0
"""Of a piece, where there is a budget; and no more than a quarter of the time that scoring has."""


class Scored(NamedTuple):
    """Scores of the first `depth` candidates."""

    depth: int
    values: NDArray[np.float32]  # (depth,)


def score_in_time(
    score: Callable[[int, int], NDArray[np.float32]],
    sizes: NDArray[np.floating],
    cost: CostModel,
    deadline: Deadline,
    most_at_once: float,
) -> Scored:
    """`score(start, stop)` for as many candidates as the time allows, from the first on.

    A third of the time that is left goes to each piece, and no more than a few milliseconds: a
    wrong prediction, or a pause of the machine, is noticed while there is time to make up for it.
    When that would hold nothing, the rest is used as one piece.
    """
    values: list[NDArray[np.float32]] = []
    start = 0
    longest = min(_LONGEST_MS, deadline.left() / 4)
    while start < len(sizes):
        count = _next_piece(sizes[start:], cost, deadline.left(), longest, most_at_once)
        if count == 0:
            if start == 0:
                cost.relax()
            break
        began = deadline.clock()
        values.append(score(start, start + count))
        cost.learn(float(sizes[start : start + count].sum()), deadline.clock() - began)
        start += count
    return Scored(start, np.concatenate([np.empty(0, np.float32), *values]))


def _next_piece(
    sizes: NDArray[np.floating], cost: CostModel, left: float, longest: float, most_at_once: float
) -> int:
    """How many candidates come next; none when the next one alone would end too late."""
    largest = max(1, int(np.searchsorted(np.cumsum(sizes), most_at_once, side="right")))
    if left == float("inf"):
        return largest
    in_third = cost.fitting(sizes, min(left / 3, longest))
    # A piece whose fixed cost is most of it is not worth its start: take all that fits.
    if in_third == 0 or 4 * cost.predict(0) > left:
        return min(cost.fitting(sizes, left), largest)
    return min(in_third, largest)
