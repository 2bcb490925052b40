"""Medians after a warm-up, of several things in turn: what disturbs one disturbs the others too."""

import statistics
from collections.abc import Callable, Sequence

from glassrank.deadline import now

Work = Callable[[], object]


def medians_ms(works: Sequence[Work], repeats: int = 7, warm_ups: int = 1) -> list[float]:
    for work in works:
        for _ in range(warm_ups):
            work()
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for times, work in zip(taken, works, strict=True):
            began = now()
            work()
            times.append(now() - began)
    return [statistics.median(times) for times in taken]


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
