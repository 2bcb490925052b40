"""Cross-validation: each fold of the training queries is tested once, by a model that chose its
best step on the next fold and learnt from the others."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from glassrank.train.prepared import Prepared


def queries_by_fold(prepared: Prepared) -> list[NDArray[np.int64]]:
    """Which of the training queries each fold tests; none where there are no folds."""
    folds = prepared.train.folds
    if folds is None:
        return []
    return [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]


def of_fold(prepared: Prepared, fold: int) -> Prepared:
    """What the model of a fold learns from, chooses its best step on, and is tested on."""
    tested = queries_by_fold(prepared)
    following = (fold + 1) % len(tested)
    others = [queries for n, queries in enumerate(tested) if n not in (fold, following)]
    return replace(
        prepared,
        train=prepared.train.only(np.sort(np.concatenate(others))),
        dev=prepared.train.only(tested[following]),
        test=prepared.train.only(tested[fold]),
    )
