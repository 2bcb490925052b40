"""Methods by name."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassrank.deadline import Deadline
from glassrank.errors import InputError
from glassrank.index import BM25, QL, RM3, Index, Method, method_name, parse_method
from glassrank.index.search import score_terms, search
from glassrank.types import Doc

bases = st.one_of(
    st.builds(BM25, st.floats(0, 1000), st.floats(0, 1), st.booleans()),
    st.builds(QL, st.floats(1e-6, 1e9), st.booleans()),
)
feedback = st.builds(RM3, bases, st.integers(1, 1000), st.integers(1, 1000), st.floats(0, 1))


@given(method=st.one_of(bases, feedback))
def test_a_name_says_everything(method: Method) -> None:
    assert parse_method(method_name(method)) == method


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bm25", BM25(0.9, 0.4)),
        ("QL", QL(1000)),
        ("bm25()", BM25()),
        (" bm25 ( k1 = 1.2 , b = 0.75 ) ", BM25(1.2, 0.75)),
        ("ql(mu=1e+06)+rm3", RM3(QL(1e6))),
        ("ql(rounded=1)+rm3", RM3(QL(rounded=True), 10, 10, 0.5)),
        ("bm25+rm3(terms=20,docs=5,weight=0.7)", RM3(BM25(), 20, 5, 0.7)),
    ],
)
def test_parse(text: str, expected: Method) -> None:
    assert parse_method(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bm52", "did you mean bm25?"),
        ("tfidf", "known are bm25, ql, bm25+rm3, ql+rm3"),
        ("", "known are"),
        ("rm3", "unknown method"),
        ("bm25+", "unknown method"),
        ("bm25+ql", "unknown method"),
        ("bm25(k1=1", "unknown method"),
        ("bm25(mu=3)", "BM25 has no parameter 'mu', only k1, b, rounded"),
        ("bm25(k1)", "k1 takes a number, not ''"),
        ("bm25(k1=much)", "k1 takes a number, not 'much'"),
        ("bm25(k1=nan)", "k1 must be between 0 and 1000, not nan"),
        ("ql(mu=0)", "mu must be between 1e-06 and 1e+09, not 0"),
        ("bm25+rm3(terms=1.5)", "terms takes a number"),
        ("bm25+rm3(docs=0)", "docs must be between 1 and 1000, not 0"),
        ("bm25+rm3(base=1)", "RM3 has no parameter 'base'"),
    ],
)
def test_a_wrong_name_says_what_is_right(text: str, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_method(text)
    assert problem in str(raised.value)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize("text", ["+" * 60_000, "bm25" + " " * 60_000, "bm25(" * 20_000, "a" * 201])
def test_a_method_is_short(text: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError, match="at most 200 characters") as refused:
        parse_method(text)
    assert time.process_time() - began < 0.1 and len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "text",
    [
        *("bm25(", "bm25)", "bm25()x", "bm25((k1=1))", "(k1=1)", "", "+", "+rm3", "bm25+", "rm3"),
        *("bm25 rm3", "bm25(k1=1)(b=0)", "bm25(k1=1", "ql+bm25", "bm25\u00b2", "bm25(+)"),
        "bm25+rm3+rm3",
    ],
)
def test_what_is_no_method_is_named(text: str) -> None:
    with pytest.raises(InputError, match="method"):
        parse_method(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("BM25 ( k1 = 1e+0 , b=.5 ) + RM3 ( terms=3 )", "bm25(k1=1,b=0.5)+rm3(terms=3)"),
        ("ql(mu=1e+06)", "ql(mu=1000000)"),
        ("ql(mu=1e+06)+rm3", "ql(mu=1000000)+rm3()"),
        (" bm25() ", "bm25"),
    ],
)
def test_methods_may_be_written_in_several_ways(text: str, same: str) -> None:
    assert parse_method(text) == parse_method(same)


def test_a_query_with_a_deadline_looks_at_a_bounded_number_of_postings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = [Doc(f"d{n:02}", f"ant {'bee ' * (n % 2)}{'cat' * (n % 10 == 0)}") for n in range(40)]
    index = Index.build(docs, tmp_path / "index")  # 40 ants, 20 bees, 4 cats
    deadline = Deadline.after(60_000)
    for method in ("bm25", "ql", "bm25+rm3", "ql+rm3"):
        for most, kept in ((64, "ant bee cat"), (63, "bee cat"), (23, "cat"), (3, "cat")):
            monkeypatch.setattr("glassrank.index.search.MAX_POSTINGS", most)
            (bounded,) = index.top_k(["ant bee cat"], 40, method, deadline=deadline)
            (expected,) = index.top_k([kept], 40, method, deadline=deadline)
            assert bounded.docs.tolist() == expected.docs.tolist()
            assert bounded.scores.tolist() == expected.scores.tolist()
            left_out = [word for word in ("ant", "bee", "cat") if word not in kept]
            assert index.dropped_terms("ant bee cat") == left_out
        (free,) = index.top_k(["ant bee cat"], 40, method)
        assert len(free.docs) == 40


@pytest.mark.parametrize("method", [BM25(), QL()])
def test_a_score_is_the_sum_of_its_terms_scores(tmp_path: Path, method: BM25 | QL) -> None:
    """In all segments, and not of documents that are deleted."""
    texts = ["cat cat dog", "dog mouse", "mouse", "cat mouse mouse", "dog", "bird"]
    index = Index.build([Doc(str(n), text) for n, text in enumerate(texts[:3])], tmp_path / "index")
    index.add(Doc(str(n), text) for n, text in enumerate(texts[3:], 3))
    index.delete(["4"])
    query = {"cat": 1.0, "dog": 2.0, "mous": 1.0, "absent": 1.0}
    (top,) = search(index.snapshot, [query], 10, method)
    values = score_terms(index.snapshot, query, top.docs, method)
    assert values.shape == (len(top.docs), len(query)) and len(top.docs) == 4
    assert values.sum(1) == pytest.approx(top.scores.tolist(), rel=1e-6)
    (both,) = [row for row, n in zip(values, top.docs, strict=True)
               if index.snapshot.doc_id(int(n)) == "0"]  # fmt: skip
    assert both[0] > 0 and both[1] > 0 and both[2:].tolist() == [0, 0]
