"""The first stage's share of a score, by query word: BM25 and query likelihood are sums over terms,
so it is divided exactly. The share of RM3 and of other engines stays one part.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from glassrank.explanations.explanation import Explanation
from glassrank.explanations.structure import FIRST_STAGE, ScorePart
from glassrank.index import Index
from glassrank.index.methods import parse_method
from glassrank.index.search import RM3, score_terms

_ROUNDING = 1e-4  # of a score: how much float32 sums in another order may differ

OTHER_WORDS = "other words"
"""Terms that come from no query word, as the model reads the query."""

Values = NDArray[np.float64]


def split_first_scores(
    index: Index,
    method: str,
    query: str,
    words: Sequence[str],
    docs: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> Values | None:
    """What each word of the query adds to the first stage's scores (docs, Q + 1); last what belongs
    to no word. None if scores are no sums over terms."""
    parsed = parse_method(method)
    if isinstance(parsed, RM3):
        return None
    terms = Counter(index.terms(query))
    own = [index.terms(word) for word in words]
    shares = np.zeros((len(terms), len(words) + 1))  # (terms, Q + 1)
    for row, term in enumerate(terms):
        places = [place for place, word_terms in enumerate(own) if term in word_terms]
        shares[row, places or [-1]] = 1 / max(1, len(places))
    values: Values = score_terms(index.snapshot, terms, docs, parsed) @ shares
    totals = scores.astype(np.float64)
    rest = totals - values.sum(1)
    if (np.abs(rest) > _ROUNDING * np.maximum(1, np.abs(totals))).any():
        return None
    values[np.arange(len(docs)), np.abs(values).argmax(1)] += rest  # sums stay exact
    return values


def divide_first_stage(explanation: Explanation, values: Sequence[float]) -> Explanation:
    """Divides the first stage's share in proportion to Q + 1 values; the last is the rest."""
    shares = [part for part in explanation.parts.children if part.kind == FIRST_STAGE]
    total = math.fsum(values)
    if not shares or not total:
        return explanation
    (whole,) = shares
    *own, rest = (value * whole.value / total for value in values)
    words = explanation.query.words
    children = [ScorePart(words[q].text, "term", value, q) for q, value in enumerate(own) if value]
    if rest:
        children.append(ScorePart(OTHER_WORDS, "constant", rest))
    divided = ScorePart.total(FIRST_STAGE, FIRST_STAGE, children)
    parts = (divided if part is whole else part for part in explanation.parts.children)
    return replace(
        explanation,
        parts=ScorePart.total(explanation.parts.name, explanation.parts.kind, parts),
        terms=tuple(
            replace(
                term,
                value=term.value + own[term.word],
                paths={**term.paths, FIRST_STAGE: own[term.word]} if term.paths else {},
            )
            for term in explanation.terms
        ),
    )
