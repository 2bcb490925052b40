"""Haystack's own pipeline around ours."""

import pytest

import glassrank as gr
from glassrank.errors import InputError

haystack = pytest.importorskip("haystack", reason="the package haystack-ai is not installed")
from haystack import Document, Pipeline  # noqa: E402
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever  # noqa: E402
from haystack.document_stores.in_memory import InMemoryDocumentStore  # noqa: E402

from glassrank.integrations.haystack import GlassrankRanker  # noqa: E402


@pytest.fixture
def documents(texts: dict[str, str]) -> list[Document]:
    return [Document(id=doc_id, content=text, meta={"n": 1}) for doc_id, text in texts.items()]


def test_documents_are_ranked_as_we_do(
    documents: list[Document], texts: dict[str, str], query: str
) -> None:
    ranker = GlassrankRanker("fast", top_k=4)
    ranker.warm_up()
    ranked = ranker.run(query=query, documents=documents)["documents"]
    own = gr.rank(query, texts.values(), model="fast", ids=list(texts), k=4)
    assert [(document.id, document.score) for document in ranked] == [
        (hit.doc_id, pytest.approx(hit.score)) for hit in own
    ]
    assert ranked[0].meta == {"n": 1} and documents[0].score is None
    assert len(ranker.run(query=query, documents=documents, top_k=2)["documents"]) == 2


def test_nothing_to_do_and_no_text() -> None:
    assert GlassrankRanker().run(query="a query", documents=[]) == {"documents": []}
    with pytest.raises(InputError, match="no text in its content"):
        GlassrankRanker().run(query="a query", documents=[Document()])


def test_it_stands_in_a_pipeline_that_is_written_and_read(
    documents: list[Document], query: str, best: str
) -> None:
    store = InMemoryDocumentStore()
    store.write_documents(documents)
    pipeline = Pipeline()
    pipeline.add_component("retriever", InMemoryBM25Retriever(store))
    pipeline.add_component("ranker", GlassrankRanker("fast", top_k=2))
    pipeline.connect("retriever.documents", "ranker.documents")
    given = {"retriever": {"query": query}, "ranker": {"query": query}}
    answer = pipeline.run(given)["ranker"]["documents"]
    assert answer[0].id == best and len(answer) == 2
    trusted = ["glassrank.integrations.haystack"]
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=trusted).get_component("ranker")
    assert (again.model, again.top_k, again.budget_ms) == ("fast", 2, None)
    assert again.run(query=query, documents=documents)["documents"][0].id == best
