"""LlamaIndex's own query engine parts around ours."""

import pytest

import glassrank as gr
from glassrank.errors import InputError

pytest.importorskip("llama_index.core", reason="the package llama-index-core is not installed")
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from glassrank.integrations.llama_index import GlassrankPostprocessor


@pytest.fixture
def nodes(texts: dict[str, str]) -> list[NodeWithScore]:
    return [
        NodeWithScore(node=TextNode(text=text, id_=doc_id, metadata={"page": 1}), score=0.5)
        for doc_id, text in texts.items()
    ]


def test_nodes_are_ranked_as_we_do(
    nodes: list[NodeWithScore], texts: dict[str, str], query: str
) -> None:
    ranked = GlassrankPostprocessor(model="fast", top_n=4).postprocess_nodes(nodes, query_str=query)
    own = gr.rank(query, texts.values(), model="fast", ids=list(texts), k=4)
    assert [(node.node.node_id, node.score) for node in ranked] == [
        (hit.doc_id, pytest.approx(hit.score)) for hit in own
    ]
    assert ranked[0].node.metadata == {"page": 1}
    assert nodes[0].score == 0.5  # those that were given stay as they are
    bundle = GlassrankPostprocessor(model="fast").postprocess_nodes(nodes, QueryBundle(query))
    assert [node.node.node_id for node in bundle][:4] == [hit.doc_id for hit in own]


def test_nothing_to_do_and_nothing_asked(nodes: list[NodeWithScore]) -> None:
    assert GlassrankPostprocessor().postprocess_nodes([], query_str="a query") == []
    with pytest.raises(InputError, match="give query_str or query_bundle"):
        GlassrankPostprocessor().postprocess_nodes(nodes)


def test_it_stands_in_a_query_engine(
    nodes: list[NodeWithScore], texts: dict[str, str], query: str, best: str
) -> None:
    from llama_index.core import MockEmbedding, VectorStoreIndex
    from llama_index.core.llms import MockLLM

    index = VectorStoreIndex([node.node for node in nodes], embed_model=MockEmbedding(embed_dim=4))
    engine = index.as_query_engine(
        llm=MockLLM(),
        similarity_top_k=len(texts),
        node_postprocessors=[GlassrankPostprocessor(model="fast", top_n=2)],
    )
    answer = engine.query(query)
    assert answer.source_nodes[0].node.node_id == best
    assert len(answer.source_nodes) == 2
