"""Retrieval by terms, by vectors, or by both, and how the two lists become one.

A document that terms did not find still has a score by terms, if a small one: models interpolate
with it, so it is computed."""

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
NOTHING_FOUND = TopK(np.empty(0, np.int64), np.empty(0, np.float32))
_RANK_CONSTANT = 60.0
_DENSE_WEIGHT = 1.0
"""Of a rank by vectors, as a share of one by terms."""


def check_retrieval(name: str) -> Retrieval:
    """The name of a first stage."""
    for known in RETRIEVALS:
        if name == known:
            return known
    raise InputError(f"unknown first stage {name!r}; expected {', '.join(RETRIEVALS)}")


def fuse(by_terms: TopK, by_vector: TopK, k: int) -> TopK:
    """The best k by reciprocal ranks (`index/first_stage.py`); of equals, first what terms found.
    Scores by terms are 0 where they are not known."""
    ranks = [1 / (_RANK_CONSTANT + 1 + np.arange(len(top.docs))) for top in (by_terms, by_vector)]
    both = np.concatenate([by_terms.docs, by_vector.docs])
    docs, first, places = np.unique(both, return_index=True, return_inverse=True)
    weights = np.concatenate([ranks[0], _DENSE_WEIGHT * ranks[1]])
    fused = np.bincount(places, weights, len(docs))
    scores, found_by = np.zeros(len(docs), np.float32), np.zeros(len(docs), np.uint8)
    of_terms, of_vectors = np.split(places, [len(by_terms.docs)])
    scores[of_terms] = by_terms.scores
    found_by[of_terms] += np.uint8(BY_TERMS)
    found_by[of_vectors] += np.uint8(BY_VECTOR)
    best = np.lexsort((first, -fused))[:k]
    missing = tuple(sorted({*by_terms.missing, *by_vector.missing}))
    return TopK(docs[best], scores[best], missing, fused[best].astype(np.float32), found_by[best])


def found_by_names(method: str) -> list[tuple[str, ...]]:
    """What each sum of `BY_TERMS`, `BY_VECTOR` and `BY_NEIGHBOUR` is called.

    >>> found_by_names("bm25(k1=1.2)+rm3")[:5]
    [(), ('bm25+rm3',), ('dense',), ('bm25+rm3', 'dense'), ('graph',)]
    """
    names = re.sub(r"\(.*?\)", "", method), "dense", "graph"
    return [tuple(n for bit, n in enumerate(names) if kinds >> bit & 1) for kinds in range(8)]
