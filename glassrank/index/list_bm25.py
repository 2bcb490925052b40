"""BM25 over a list of texts without an index: the order in which models read it.

Statistics are those of the list; analysis and formula are those of the first stage. Lengths are in
characters, which ranks as well as tokens and needs no analysis of the texts.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from glassrank.index.scoring import BM25, CollectionStatistics, TermStatistics
from glassrank.index.search import TopK
from glassrank.index.snippets import SnippetMaker
from glassrank.text import EnglishAnalyzer
from glassrank.text.analysis import Analyzer

ENGLISH = EnglishAnalyzer()  # shared, because it caches stems


def rank_by_bm25(
    query: str, texts: Sequence[str], method: BM25 | None = None, analyzer: Analyzer = ENGLISH
) -> TopK:
    """The positions of all texts, best first; equal ones in their order.

    >>> rank_by_bm25("sleeping cat", ["A dog.", "Dogs sleep.", "The cat sleeps."]).docs
    array([2, 1, 0])
    """
    method = method or BM25()
    weights = Counter(analyzer(query))
    rows = {term: row for row, term in enumerate(weights)}
    sizes = np.array([len(text) for text in texts], np.int64)
    # One search in all texts takes half the time of one in each.
    matches = SnippetMaker(query, analyzer).matches(" ".join(texts))
    ends = np.cumsum(sizes + 1)
    places = np.searchsorted(ends, [start for start, _, _ in matches], side="right")
    counts = np.zeros((len(rows), len(texts)), np.float32)  # (T, N)
    np.add.at(counts, (np.array([rows[term] for *_, term in matches], np.int64), places), 1)
    collection = CollectionStatistics(len(texts), int(sizes.sum()))
    lengths = method.length_norms(sizes, collection)
    scores = np.zeros(len(texts), np.float32)
    for weight, count in zip(weights.values(), counts, strict=True):
        statistics = TermStatistics(int((count > 0).sum()), int(count.sum()))
        scores += weight * method.score(method.term_factors(statistics, collection), count, lengths)
    order = np.argsort(-scores, kind="stable")
    return TopK(order, scores[order])
