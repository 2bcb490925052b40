"""LangChain's own classes around ours."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import glassrank as gr

core = pytest.importorskip("langchain_core", reason="the package langchain-core is not installed")
from langchain_core.documents import Document  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402

from glassrank.integrations.langchain import GlassrankCompressor, GlassrankRetriever  # noqa: E402


@pytest.fixture
def documents(texts: dict[str, str]) -> list[Document]:
    return [
        Document(text, id=doc_id, metadata={"n": n})
        for n, (doc_id, text) in enumerate(texts.items())
    ]


def test_the_compressor_ranks_as_we_do(
    documents: list[Document], texts: dict[str, str], query: str
) -> None:
    ranked = GlassrankCompressor(model="fast", top_n=4).compress_documents(documents, query)
    own = gr.rank(query, texts.values(), model="fast", ids=list(texts), k=4)
    assert [document.id for document in ranked] == [hit.doc_id for hit in own]
    for document, hit in zip(ranked, own, strict=True):
        assert document.metadata["score"] == pytest.approx(hit.score)
        assert document.metadata["relevance_score"] == pytest.approx(hit.probability)
        assert document.page_content == texts[hit.doc_id]
        assert document.metadata["n"] == list(texts).index(hit.doc_id)
    assert "relevance_score" not in documents[0].metadata  # those that were given stay as they are


def test_the_compressor_has_nothing_to_do() -> None:
    assert GlassrankCompressor().compress_documents([], "a query") == []


async def compressed(documents: list[Document], query: str) -> list[Document]:
    return list(await GlassrankCompressor(model="fast").acompress_documents(documents, query))


def test_the_compressor_is_awaited(documents: list[Document], query: str, best: str) -> None:
    with ThreadPoolExecutor(1) as pool:  # a browser's tests may have an event loop in this one
        found = pool.submit(asyncio.run, compressed(documents, query)).result()
    assert found[0].id == best


def test_the_retriever_is_a_runnable(
    texts: dict[str, str], query: str, best: str, tmp_path: Path
) -> None:
    docs = [gr.Doc(i, text, f"About {i}", metadata={"year": 2020}) for i, text in texts.items()]
    search = gr.Pipeline(gr.Index.build(docs, tmp_path / "i"), gr.load("fast"), calibrate=False)
    chain = GlassrankRetriever(pipeline=search, k=3) | RunnableLambda(lambda found: found[0])
    document = chain.invoke(query)
    assert document.id == best and document.page_content == texts[best]
    assert document.metadata["title"] == "About csv" and document.metadata["year"] == 2020
    assert document.metadata["relevance_score"] == search(query)[0].probability
    assert len(GlassrankRetriever(pipeline=search, k=3).invoke(query)) == 3


def test_both_make_langchains_own_retriever(
    texts: dict[str, str], query: str, best: str, tmp_path: Path
) -> None:
    retrievers = pytest.importorskip(
        "langchain_classic.retrievers", reason="the package langchain-classic is not installed"
    )
    docs = [gr.Doc(doc_id, text) for doc_id, text in texts.items()]
    search = gr.Pipeline(gr.Index.build(docs, tmp_path / "i"))
    both = retrievers.ContextualCompressionRetriever(
        base_compressor=GlassrankCompressor(model="fast", top_n=2),
        base_retriever=GlassrankRetriever(pipeline=search),
    )
    answer = both.invoke(query)
    assert answer[0].id == best and len(answer) == 2
