"""Retrieval by terms, by vectors, or by both, and how the two lists become one.

Models interpolate with scores by terms. Of a document that terms did not find, that score is 0: to
compute it makes no ranking better (docs/decisions/0033-what-terms-miss.md)."""

import re
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from glassrank.errors import InputError
from glassrank.index.search import BY_TERMS, BY_VECTOR, TopK
from glassrank.storage.mapped_arrays import Floats

Retrieval = Literal["bm25", "dense", "hybrid"]
"""By terms, as `method` says; by vectors; or fused."""
RETRIEVALS: tuple[Retrieval, ...] = get_args(Retrieval)
DEFAULT_RETRIEVAL: Retrieval = "hybrid"
"""Where a store has vectors of documents."""


def check_retrieval(name: str) -> Retrieval:
    """The name of a first stage."""
    for known in RETRIEVALS:
        if name == known:
            return known
    raise InputError(f"unknown first stage {name!r}; expected {', '.join(RETRIEVALS)}")


def fuse(by_terms: TopK, by_vector: TopK, k: int, *, dense: bool = False) -> TopK:
    """All of two lists of at most k, by the sum of their z-scores; of equals, first what terms
    found. A document that a list lacks has its lowest score there, or 0 by terms if the list has
    all that match. If `dense`, those by vectors alone. Scores are those by terms."""
    lowest = (
        float(by_terms.scores[-1]) if len(by_terms.docs) == k else 0.0,
        float(by_vector.scores[-1]) if len(by_vector.docs) else 0.0,
    )
    term_z, term_floor = _standardize(by_terms.scores, lowest[0])
    vector_z, vector_floor = _standardize(by_vector.scores, lowest[1])
    order = np.argsort(by_terms.docs)
    places = np.searchsorted(by_terms.docs, by_vector.docs, sorter=order)
    places = np.append(order, -1)[places]  # where terms have it, if they do
    both = np.append(by_terms.docs, -1)[places] == by_vector.docs
    if dense:
        docs, fused = by_vector.docs, vector_z
        scores = np.where(both, np.append(by_terms.scores, 0)[places], 0)
        found_by = np.full(len(docs), BY_VECTOR, np.uint8)
    else:
        docs = np.append(by_terms.docs, by_vector.docs[~both])
        scores = np.append(by_terms.scores, np.zeros(len(docs) - len(term_z)))
        fused = np.append(term_z + vector_floor, vector_z[~both] + term_floor)
        fused[places[both]] += vector_z[both] - vector_floor
        found_by = np.full(len(docs), BY_VECTOR, np.uint8)
        found_by[: len(term_z)] = BY_TERMS
        found_by[places[both]] |= BY_VECTOR
    best = np.argsort(-fused, kind="stable")
    missing = tuple(sorted({*by_terms.missing, *by_vector.missing}))
    values = (array[best].astype(np.float32) for array in (scores, fused))
    return TopK(docs[best], next(values), missing, next(values), found_by[best])


def _standardize(scores: Floats, lowest: float) -> tuple[NDArray[np.float64], float]:
    """The z-scores of a list, and of its lowest score, which counts as one more."""
    given = np.append(scores, np.float64(lowest))
    z_scores = (given - given.mean()) / max(float(given.std()), 1e-9)
    return z_scores[:-1], float(z_scores[-1])


def found_by_names(method: str) -> list[tuple[str, ...]]:
    """What each sum of `BY_TERMS`, `BY_VECTOR` and `BY_NEIGHBOUR` is called.

    >>> found_by_names("bm25(k1=1.2)+rm3")[:5]
    [(), ('bm25+rm3',), ('dense',), ('bm25+rm3', 'dense'), ('graph',)]
    """
    names = re.sub(r"\(.*?\)", "", method), "dense", "graph"
    return [tuple(n for bit, n in enumerate(names) if kinds >> bit & 1) for kinds in range(8)]
