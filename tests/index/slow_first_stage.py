"""BM25, query likelihood and RM3 once more: slow, in double precision, formulas written out.

Documents are lists of terms by id. What the index must agree with.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

Docs = Mapping[str, Sequence[str]]
Query = Mapping[str, float]
Scores = dict[str, float]
Ranked = list[tuple[str, float]]
Score = Callable[[Docs, Query], Scores]


def bm25(
    docs: Docs, query: Query, k1: float = 0.9, b: float = 0.4, rounded: bool = False
) -> Scores:
    n = len(docs)
    average = sum(map(len, docs.values())) / n
    scores: defaultdict[str, float] = defaultdict(float)
    for term, weight in query.items():
        df = sum(term in words for words in docs.values())
        for doc_id, words in docs.items():
            tf = words.count(term)
            if tf:
                length = lucene_length(len(words)) if rounded else len(words)
                idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
                scores[doc_id] += weight * idf * tf / (tf + k1 * (1 - b + b * length / average))
    return dict(scores)


def ql(docs: Docs, query: Query, mu: float = 1000, rounded: bool = False) -> Scores:
    """Over the terms that match, none of which counts less than 0."""
    tokens = sum(map(len, docs.values()))
    scores: defaultdict[str, float] = defaultdict(float)
    for term, weight in query.items():
        cf = sum(words.count(term) for words in docs.values())
        p = (cf + 1) / (tokens + 1)
        for doc_id, words in docs.items():
            tf = words.count(term)
            if tf:
                length = lucene_length(len(words)) if rounded else len(words)
                value = math.log(1 + tf / (mu * p)) + math.log(mu / (length + mu))
                scores[doc_id] += max(0, weight * value)
    return dict(scores)


def rm3_query(
    docs: Docs, query: Query, first_pass: Ranked, terms: int = 10, weight: float = 0.5
) -> dict[str, float]:
    """The query that the first documents make of a query."""
    model: defaultdict[str, float] = defaultdict(float)
    for doc_id, score in first_pass:
        counts = {
            term: tf
            for term, tf in Counter(docs[doc_id]).items()
            if re.fullmatch("[a-z0-9]{2,20}", term)
            and sum(term in words for words in docs.values()) / len(docs) <= 0.1
        }
        best = best_first(counts)[:terms]
        norm = sum(tf for _, tf in best)
        for term, tf in best:
            model[term] += tf / norm * score
    kept = best_first(model)[:terms]
    norm = sum(value for _, value in kept)
    own = sum(query.values())
    if not norm:
        return {term: value / own for term, value in query.items()}
    mixed = {term: weight * value / own for term, value in query.items()}
    for term, value in kept:
        mixed[term] = mixed.get(term, 0) + (1 - weight) * value / norm
    return mixed


def rm3(score: Score, docs: Docs, query: Query) -> Scores:
    first_pass = best_first(score(docs, query))[:10]
    return score(docs, rm3_query(docs, query, first_pass))


def best_first(scores: Mapping[str, float]) -> Ranked:
    """Equal scores in the order of their ids."""
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def lucene_length(length: int) -> int:
    """Exact up to 40, then four leading bits of what passes 24, the others zero."""
    bits = max(0, (length - 24).bit_length() - 4) if length > 40 else 0
    return 24 + ((length - 24) >> bits << bits)


METHODS: dict[str, Score] = {
    "bm25": bm25,
    "ql": ql,
    "bm25+rm3": partial(rm3, bm25),
    "ql+rm3": partial(rm3, ql),
    "bm25(rounded=1)": partial(bm25, rounded=True),
    "ql(rounded=1)": partial(ql, rounded=True),
    "bm25(rounded=1)+rm3": partial(rm3, partial(bm25, rounded=True)),
    "ql(rounded=1)+rm3": partial(rm3, partial(ql, rounded=True)),
}
"""By the names that `Index.search` takes."""
