"""RM3: the query, enriched with the words of the documents that it finds first.

Jaleel et al., "UMass at TREC 2004", in the form of Anserini: each of the first documents gives its
most frequent terms, weighted by its score; the best of them join the query.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from glassrank.deadline import NEVER, Deadline
from glassrank.retrieve.scoring import BM25, QL
from glassrank.retrieve.search import TopK, WeightedQuery
from glassrank.retrieve.snapshot import Snapshot

_EXPANSION_TERM = re.compile("[a-z0-9]{2,20}")
_TRIED_AT_ONCE = 64
_COMMON = 0.1
"""Terms in a larger part of the collection than this say nothing."""


@dataclass(frozen=True)
class RM3:
    """Feedback over a first pass with `base`."""

    base: BM25 | QL
    terms: int = 10
    docs: int = 10
    weight: float = 0.5
    """Of the original query; the rest goes to the expansion."""


def expand(
    snapshot: Snapshot,
    query: WeightedQuery,
    first_pass: TopK,
    method: RM3,
    deadline: Deadline = NEVER,
) -> dict[str, float]:
    """The new query: each part's weights add up to its share. At most half of the time that is left
    goes to feedback, from as many documents as that allows."""
    relevance = _relevance_model(snapshot, first_pass, method.terms, deadline.share(0.5))
    original = _normalised(query)
    if not relevance:
        return original
    return {
        term: method.weight * original.get(term, 0.0)
        + (1 - method.weight) * relevance.get(term, 0.0)
        for term in [*original, *(term for term in relevance if term not in original)]
    }


def _relevance_model(
    snapshot: Snapshot, first_pass: TopK, terms: int, until: Deadline
) -> dict[str, float]:
    model: defaultdict[str, float] = defaultdict(float)
    for number, score in zip(first_pass.docs.tolist(), first_pass.scores.tolist(), strict=True):
        frequent = _frequent_terms(snapshot, number, terms, until)
        if until.passed():  # of this document, there may be only a part
            break
        for term, share in _normalised(frequent).items():
            model[term] += share * score
    best = sorted(model.items(), key=lambda item: (-item[1], item[0]))[:terms]
    return _normalised(dict(best))


def _frequent_terms(snapshot: Snapshot, number: int, n: int, until: Deadline) -> dict[str, float]:
    """A document's n most frequent terms that may join a query, and how often it has them; of those
    that it has as often, the first by their bytes."""
    segment, local = snapshot.place(number)
    terms, counts = segment.vector(local)
    most_docs = _COMMON * snapshot.collection.docs
    frequent: dict[str, float] = {}
    order = np.lexsort((terms, -counts.astype(np.int64)))
    for tried, (term, count) in enumerate(
        zip(terms[order].tolist(), counts[order].tolist(), strict=True)
    ):
        text = segment.terms[term]
        if _EXPANSION_TERM.fullmatch(text) and snapshot.term(text).statistics.docs <= most_docs:
            frequent[text] = float(count)
        if len(frequent) == n or (tried % _TRIED_AT_ONCE == 0 and until.passed()):
            break
    return frequent


def _normalised(weights: WeightedQuery) -> dict[str, float]:
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()} if total > 0 else {}
