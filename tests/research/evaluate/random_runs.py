"""Random runs and judgments of every awkward kind: ties, missing queries, unjudged documents."""

import numpy as np
from hypothesis import strategies as st

from glassrank.types import Qrels

RunDict = dict[str, dict[str, float]]

DOC_IDS = [f"d{number}" for number in range(30)] + ["D", "é", "\uffee", "\U0001f600"]


def random_case(seed: int, ties: bool = True) -> tuple[RunDict, Qrels]:
    rng = np.random.default_rng(seed)
    run: RunDict = {}
    qrels: Qrels = {}
    for query in map(str, range(1, 9)):
        if rng.random() < 0.8:  # else the run misses the query
            found = rng.permutation(DOC_IDS)[: rng.integers(0, len(DOC_IDS))].tolist()
            scores = rng.integers(0, 6, len(found)) / 2 if ties else rng.permutation(len(found))
            run[query] = dict(zip(found, scores.astype(float).tolist(), strict=True))
        if rng.random() < 0.8:  # else the query has no judgments
            judged = rng.permutation(DOC_IDS)[: rng.integers(1, 20)].tolist()
            top = rng.integers(0, 5)  # sometimes all grades are 0
            grades = rng.integers(-1, top + 1, len(judged)).tolist()
            # trec_eval's nDCG never returns when all judgments of a query are negative.
            grades[0] = max(grades[0], 0)
            qrels[query] = dict(zip(judged, grades, strict=True))
    qrels["50"] = {"d1": 1, "d2": 0}
    return run, qrels


def cases(ties: bool = True) -> st.SearchStrategy[tuple[RunDict, Qrels]]:
    """numpy draws, hypothesis picks the seed: a run has too many choices to shrink one by one."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_case(seed, ties))
