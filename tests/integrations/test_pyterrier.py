"""PyTerrier's own operators around ours; nothing here needs its Java parts."""

from pathlib import Path

import pytest

import glassrank as gr

pt = pytest.importorskip("pyterrier", reason="the package pyterrier is not installed")
pd = pytest.importorskip("pandas", reason="the package pandas is not installed")
from glassrank.integrations.pyterrier import PtReranker, PtRetriever  # noqa: E402

QUERIES = pd.DataFrame(
    {"qid": ["q2", "q1"], "query": ["how do I read a csv file?", "where did the cat sit?"]}
)


@pytest.fixture
def search(texts: dict[str, str], tmp_path: Path) -> gr.Pipeline:
    docs = [gr.Doc(doc_id, text) for doc_id, text in texts.items()]
    return gr.Pipeline(gr.Index.build(docs, tmp_path / "i"))


def test_the_retriever(search: gr.Pipeline, texts: dict[str, str]) -> None:
    results = PtRetriever(search, k=3)(QUERIES.assign(lang="en"))
    assert list(results.columns) == ["qid", "query", "lang", "docno", "text", "score", "rank"]
    for qid, query in zip(QUERIES["qid"], QUERIES["query"], strict=True):
        rows = results[results["qid"] == qid]
        own = search(query, 3)
        assert rows["docno"].tolist() == [hit.doc_id for hit in own]
        assert rows["score"].tolist() == [hit.score for hit in own]
        assert rows["rank"].tolist() == [*range(len(own))]
        assert rows["text"].tolist() == [texts[doc_id] for doc_id in rows["docno"]]
    assert results["qid"].drop_duplicates().tolist() == ["q2", "q1"]


def test_the_reranker(texts: dict[str, str]) -> None:
    rows = [
        {"qid": qid, "query": query, "docno": doc_id, "body": text, "rank": 0}
        for qid, query in QUERIES.itertuples(index=False)
        for doc_id, text in texts.items()
    ]
    results = PtReranker("fast", text_field="body")(pd.DataFrame(rows))
    for qid, query in QUERIES.itertuples(index=False):
        own = gr.rank(query, texts.values(), ids=list(texts), model="fast")
        ranked = results[results["qid"] == qid]
        assert ranked["docno"].tolist() == [hit.doc_id for hit in own]
        assert ranked["score"].tolist() == pytest.approx([hit.score for hit in own])
        assert ranked["rank"].tolist() == [*range(len(texts))]


def test_they_are_composed(search: gr.Pipeline) -> None:
    both = PtRetriever(search) % 3 >> PtReranker("fast")
    results = both(QUERIES)
    best = results[results["rank"] == 0].set_index("qid")["docno"]
    assert best["q2"] == "csv" and best["q1"] == "cat"
    assert results.groupby("qid").size().max() <= 3
    assert both.search("how do I read a csv file?")["docno"].iloc[0] == "csv"


def test_what_is_empty_stays_so(search: gr.Pipeline) -> None:
    nothing = (PtRetriever(search) >> PtReranker("fast"))(QUERIES[:0])
    assert len(nothing) == 0 and {"docno", "score", "rank"} <= set(nothing.columns)
    assert len(PtRetriever(search).search("xylophone")) == 0


def test_a_column_that_lacks_is_named(texts: dict[str, str]) -> None:
    with pytest.raises(Exception, match="text"):
        PtReranker("fast")(pd.DataFrame({"qid": ["1"], "query": ["a"], "docno": ["b"]}))
