"""Retrieval by terms, by vectors, or by both, and how the two lists become one.

Models interpolate with scores by terms. Of a document that terms did not find, that score is 0: to
compute it makes no ranking better (docs/decisions/0033-what-terms-miss.md)."""

import re
from typing import Literal, get_args

import numpy as np

from glassrank.errors import InputError
from glassrank.index.search import BY_TERMS, BY_VECTOR, TopK

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
    lists = [by_terms.docs[:0] if dense else by_terms.docs, by_vector.docs]
    docs, first, places = np.unique(np.concatenate(lists), return_index=True, return_inverse=True)
    fused, found_by = np.zeros(len(docs)), np.zeros(len(docs), np.uint8)
    scores = np.zeros(len(docs), np.float32)
    parts = np.split(places, [len(lists[0])])
    for kind, at, top, floor in zip(
        (BY_TERMS, BY_VECTOR), parts, (by_terms, by_vector), lowest, strict=True
    ):
        if len(at):
            given = np.append(top.scores.astype(np.float64), floor)
            z_scores = (given - given.mean()) / max(float(given.std()), 1e-9)
            fused += z_scores[-1]
            fused[at] += z_scores[:-1] - z_scores[-1]
            found_by[at] += np.uint8(kind)
    _, at, known = np.intersect1d(docs, by_terms.docs, assume_unique=True, return_indices=True)
    scores[at] = by_terms.scores[known]
    best = np.lexsort((first, -fused))
    missing = tuple(sorted({*by_terms.missing, *by_vector.missing}))
    return TopK(docs[best], scores[best], missing, fused[best].astype(np.float32), found_by[best])


def found_by_names(method: str) -> list[tuple[str, ...]]:
    """What each sum of `BY_TERMS`, `BY_VECTOR` and `BY_NEIGHBOUR` is called.

    >>> found_by_names("bm25(k1=1.2)+rm3")[:5]
    [(), ('bm25+rm3',), ('dense',), ('bm25+rm3', 'dense'), ('graph',)]
    """
    names = re.sub(r"\(.*?\)", "", method), "dense", "graph"
    return [tuple(n for bit, n in enumerate(names) if kinds >> bit & 1) for kinds in range(8)]
