"""BM25 over a list that is in no index: against the formula, written out."""

from collections import Counter
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.index import BM25
from glassrank.index.list_bm25 import rank_by_bm25
from glassrank.text import EnglishAnalyzer

WORDS = ["cats", "Cat", "dogs", "the", "chasing", "it's", "U.S.A.'s", "ran", "\n", "häuser", "x_1"]
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), max_size=8)
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


@given(texts, queries)
def test_scores_are_those_of_the_formula(texts: list[str], query: str) -> None:
    analyze, k1, b = EnglishAnalyzer(), 0.9, 0.4
    counts = [Counter(analyze(text)) for text in texts]
    mean = sum(map(len, texts)) / len(texts) if texts else 0.0

    def score(place: int) -> float:
        total = 0.0
        for term, weight in Counter(analyze(query)).items():
            have = sum(term in count for count in counts)
            idf = log(1 + (len(texts) - have + 0.5) / (have + 0.5))
            length = k1 * (1 - b + b * len(texts[place]) / mean) if mean else k1
            tf = counts[place][term]
            total += weight * idf * tf / (tf + length)
        return total

    found = rank_by_bm25(query, texts, BM25(k1, b))
    assert sorted(found.docs.tolist()) == list(range(len(texts)))
    expected = [score(place) for place in found.docs.tolist()]
    assert found.scores.tolist() == pytest.approx(expected, abs=1e-5)
    assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)


def test_what_has_no_word_of_the_query_keeps_its_order() -> None:
    assert rank_by_bm25("cat", ["sea", "sky", "a cat", "mat"]).docs.tolist() == [2, 0, 1, 3]
    assert rank_by_bm25("the", ["b", "a"]).docs.tolist() == [0, 1]
    assert rank_by_bm25("cat", []).docs.tolist() == []
