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
_RANK_CONSTANT = 60.0


def check_retrieval(name: str) -> Retrieval:
    """The name of a first stage."""
    for known in RETRIEVALS:
        if name == known:
            return known
    raise InputError(f"unknown first stage {name!r}; expected {', '.join(RETRIEVALS)}")


def fuse(by_terms: TopK, by_vector: TopK, *, dense: bool = False) -> TopK:
    """All of both, by reciprocal ranks (`index/first_stage.py`); of equals, first what terms found.
    If `dense`, those by vectors alone. Scores are those by terms."""
    lists = [by_terms.docs[:0] if dense else by_terms.docs, by_vector.docs]
    both = np.concatenate(lists)
    docs, first, places = np.unique(both, return_index=True, return_inverse=True)
    ranks = np.concatenate([1 / (_RANK_CONSTANT + 1 + np.arange(len(ids))) for ids in lists])
    fused = np.bincount(places, ranks, len(docs))
    best = np.lexsort((first, -fused))
    found_by = np.zeros(len(docs), np.uint8)
    for kind, some in zip((BY_TERMS, BY_VECTOR), np.split(places, [len(lists[0])]), strict=True):
        found_by[some] += np.uint8(kind)
    scores = np.zeros(len(docs), np.float32)
    _, at, given = np.intersect1d(docs, by_terms.docs, assume_unique=True, return_indices=True)
    scores[at] = by_terms.scores[given]
    missing = tuple(sorted({*by_terms.missing, *by_vector.missing}))
    return TopK(docs[best], scores[best], missing, fused[best].astype(np.float32), found_by[best])


def found_by_names(method: str) -> list[tuple[str, ...]]:
    """What each sum of `BY_TERMS`, `BY_VECTOR` and `BY_NEIGHBOUR` is called.

    >>> found_by_names("bm25(k1=1.2)+rm3")[:5]
    [(), ('bm25+rm3',), ('dense',), ('bm25+rm3', 'dense'), ('graph',)]
    """
    names = re.sub(r"\(.*?\)", "", method), "dense", "graph"
    return [tuple(n for bit, n in enumerate(names) if kinds >> bit & 1) for kinds in range(8)]
