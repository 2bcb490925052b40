"""The index against the slow version, on random small collections full of ties."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from slow_first_stage import Ranked, Scores, bm25, lucene_length, ql, rm3_query

from glassrank.index import Index
from glassrank.index.scoring import quantize_lengths
from glassrank.types import Doc, Query

# Terms of themselves: neither stop words nor changed by the stemmer.
COMMON = ["ant", "bee", "cat"]
RARE = ["dog", "elk", "fox", "gnu", "hen", "cow", "kid", "owl", "pig", "rat"]
TOLERANCE = {"rel": 2e-5, "abs": 2e-5}  # single precision, summed over some terms

texts = st.lists(
    st.one_of(
        st.lists(st.sampled_from(COMMON), max_size=4),
        st.lists(st.sampled_from(COMMON + RARE), max_size=60),
    ),
    min_size=1,
    max_size=30,
)
queries = st.lists(st.sampled_from([*COMMON, *RARE, "yak"]), max_size=5)
depths = st.integers(1, 40)
BASES = {
    "bm25": bm25,
    "ql": ql,
    "bm25(rounded=1)": lambda docs, query: bm25(docs, query, rounded=True),
    "ql(rounded=1)": lambda docs, query: ql(docs, query, rounded=True),
    "bm25(k1=2,b=1)": lambda docs, query: bm25(docs, query, k1=2, b=1),
    "bm25(k1=0)": lambda docs, query: bm25(docs, query, k1=0),
    "ql(mu=5)": lambda docs, query: ql(docs, query, mu=5),
}


def with_ids(texts: list[list[str]]) -> dict[str, list[str]]:
    # d0, d1, d10, d11, d2: the order of ids is not the order of addition
    return {f"d{number}": words for number, words in enumerate(texts)}


def built(docs: dict[str, list[str]], folder: str) -> Index:
    return Index.build(
        (Doc(doc_id, " ".join(words)) for doc_id, words in docs.items()), Path(folder) / "index"
    )


def found(index: Index, query: list[str], k: int, method: str) -> Ranked:
    return [(hit.doc_id, hit.score) for hit in index.search(" ".join(query), k, method)]


def assert_ranks(ranked: Ranked, expected: Scores, k: int) -> None:
    """The k best of the expected scores, each within rounding, ordered by score, then id."""
    assert len(ranked) == min(k, len(expected))
    for doc_id, score in ranked:
        assert score == pytest.approx(expected[doc_id], **TOLERANCE)
    assert ranked == sorted(ranked, key=lambda item: (-item[1], item[0]))
    inside = {doc_id for doc_id, _ in ranked}
    for doc_id, score in expected.items():
        if doc_id not in inside:
            assert score <= ranked[-1][1] * (1 + 2e-5) + 2e-5


@pytest.mark.parametrize(("method", "slow"), BASES.items(), ids=BASES)
@given(texts=texts, query=queries, k=depths)
@settings(max_examples=15, deadline=None)
def test_scores_and_order(
    method: str,
    slow: Callable[[dict[str, list[str]], Counter[str]], Scores],
    texts: list[list[str]],
    query: list[str],
    k: int,
) -> None:
    docs = with_ids(texts)
    with TemporaryDirectory() as folder:
        ranked = found(built(docs, folder), query, k, method)
    expected = slow(docs, Counter(query)) if any(texts) else {}
    assert_ranks(ranked, expected, k)


@pytest.mark.parametrize("base", ["bm25", "ql"])
@given(texts=texts, query=queries, k=depths, terms=st.integers(1, 12), weight=st.floats(0.1, 0.9))
@settings(max_examples=25, deadline=None)
def test_feedback(
    base: str, texts: list[list[str]], query: list[str], k: int, terms: int, weight: float
) -> None:
    docs = with_ids(texts)
    assume(any(texts) and query)
    with TemporaryDirectory() as folder:
        index = built(docs, folder)
        # The index's own first pass, which the test above judges: where scores are equal but for
        # rounding, the slow version might choose other documents.
        first_pass = found(index, query, 10, base)
        method = f"{base}+rm3(terms={terms},weight={weight!r})"
        ranked = found(index, query, k, method)
    expanded = rm3_query(docs, Counter(query), first_pass, terms, weight)
    assert_ranks(ranked, BASES[base](docs, expanded), k)


@pytest.mark.parametrize("method", ["bm25", "ql", "bm25+rm3", "ql+rm3"])
@given(texts=texts, query=queries, k=depths)
@settings(max_examples=12, deadline=None)
def test_the_best_k_are_the_first_k_of_all(
    method: str, texts: list[list[str]], query: list[str], k: int
) -> None:
    with TemporaryDirectory() as folder:
        index = built(with_ids(texts), folder)
        assert found(index, query, k, method) == found(index, query, 1000, method)[:k]


@given(texts=texts, asked=st.lists(queries, max_size=40), threads=st.sampled_from([1, 3]))
@settings(max_examples=15, deadline=None)
def test_many_queries_at_once_are_the_same_as_one_by_one(
    texts: list[list[str]], asked: list[list[str]], threads: int
) -> None:
    with TemporaryDirectory() as folder:
        index = built(with_ids(texts), folder)
        run = index.retrieve(
            [Query(f"q{i}", " ".join(query)) for i, query in enumerate(asked)], 7, threads=threads
        )
        one_by_one = [found(index, query, 7, "bm25") for query in asked]
    assert run.query_ids == tuple(f"q{i}" for i in range(len(asked)))
    assert [
        list(zip(ids, scores.tolist(), strict=True)) for _, ids, scores in run.items()
    ] == one_by_one


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Index:
    docs = [Doc("b", "cat cat dog"), Doc("a", "cat cat dog"), Doc("c", "the dog"), Doc("d", "")]
    return Index.build(docs, tmp_path_factory.mktemp("small") / "index")


@pytest.mark.parametrize("method", ["bm25", "ql", "bm25+rm3", "ql+rm3"])
@pytest.mark.parametrize("query", ["", "the of", "yak", "...", "\ud800"])
def test_a_query_without_known_words_finds_nothing(small: Index, query: str, method: str) -> None:
    assert len(small.search(query, method=method)) == 0


def test_a_repeated_word_counts_each_time(small: Index) -> None:
    once = {hit.doc_id: hit.score for hit in small.search("dog")}
    assert {hit.doc_id: hit.score for hit in small.search("dog dogs DOG")} == pytest.approx(
        {doc_id: 3 * score for doc_id, score in once.items()}
    )


def test_a_match_of_no_weight_is_a_match(small: Index) -> None:
    """In query likelihood a common word in a long document may add nothing."""
    assert [hit.doc_id for hit in small.search("dog", method="ql(mu=0.01)")] == ["c", "a", "b"]
    assert small.search("dog", method="ql(mu=0.01)").hits[-1].score == pytest.approx(0, abs=1e-20)


@given(length=st.integers(0, 1 << 31))
def test_lucene_keeps_lengths_in_one_byte(length: int) -> None:
    assert quantize_lengths(np.array([length])).tolist() == [lucene_length(length)]
